//! How long a thread has had something to do.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Looks at what the kernel counts for a thread.
///
/// The runtime's own counts will not do: a thread that is short of time asks for news of its sockets and does not
/// wait for them, and what it spends with that is not told from waiting.
pub(crate) struct Occupied {
    /// `None` where the kernel counts nothing.
    counts: Option<File>,
}

impl Occupied {
    /// Of the calling thread, whoever asks later.
    pub(crate) fn of_this_thread() -> Self {
        Self { counts: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// How long it has run, or could have if its core had been free, since it began.
    pub(crate) fn so_far(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let length = self.counts.as_ref()?.read_at(&mut text, 0).ok()?;
        ran_and_waited(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// The first two numbers are nanoseconds on a core, and in the queue for one.
fn ran_and_waited(text: &str) -> Option<Duration> {
    let mut numbers = text.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
    Some(Duration::from_nanos(numbers.next()?.checked_add(numbers.next()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_the_kernel_says_is_checked() {
        assert_eq!(ran_and_waited("77560646 354684908 64\n"), Some(Duration::from_nanos(432_245_554)));
        for wrong in ["", "1", "1 x", "18446744073709551615 1 1"] {
            assert_eq!(ran_and_waited(wrong), None, "{wrong}");
        }
    }

    /// However busy the machine is: who could run is occupied.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_waits_is_not_occupied_and_one_that_works_is() {
        let time = Duration::from_millis(200);
        let worker = std::thread::spawn(move || {
            let (occupied, began) = (Occupied::of_this_thread(), Instant::now());
            let before = occupied.so_far().unwrap();
            while began.elapsed() < time {}
            (occupied.so_far().unwrap() - before, began.elapsed())
        });
        let (worked, took) = worker.join().unwrap();
        assert!(worked * 10 > took * 8, "{worked:?} of {took:?}");
        let sleeper = std::thread::spawn(move || {
            let occupied = Occupied::of_this_thread();
            std::thread::sleep(time);
            // Asked by another thread, it still is about this one.
            let (ask, asked) = std::sync::mpsc::channel();
            let (done, end) = std::sync::mpsc::channel::<()>();
            let asker = std::thread::spawn(move || {
                let began = Instant::now();
                while began.elapsed() < time {}
                ask.send(occupied.so_far().unwrap()).unwrap();
                drop(done);
            });
            let _ = end.recv();
            asker.join().unwrap();
            asked.recv().unwrap()
        });
        let slept = sleeper.join().unwrap();
        assert!(slept < time / 2, "{slept:?}");
    }
}
