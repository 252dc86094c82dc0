//! How exact a link is, and what it costs: `cargo run --release -p stoa-proxy --example cost`.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use stoa_proxy::{Link, Spec};

/// Processor time of the thread that asks.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it is not negative")
}

/// A link in a thread of its own. The function ends it, and says what processor time it took.
fn link(to: SocketAddr, delay: Duration) -> (SocketAddr, impl FnOnce() -> Duration) {
    let (opened, address) = mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("there is a runtime").block_on(async {
            let mut spec = Spec::new("127.0.0.1:0", &to.to_string());
            (spec.up.delay, spec.down.delay) = (delay, delay);
            let link = Link::open(&spec).await.expect("there is a port");
            opened.send(link.address()).expect("somebody waits for it");
            let before = processor();
            // The other side is gone when everything is over.
            let _ = stopped.await;
            processor() - before
        })
    });
    let address = address.recv().expect("the link was opened");
    (address, move || {
        drop(stop);
        thread.join().expect("the link did not panic")
    })
}

/// A server that sends everything back.
fn echo() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || -> io::Result<u64> {
                stream.set_nodelay(true)?;
                io::copy(&mut &stream, &mut &stream)
            });
        }
    });
    Ok(address)
}

/// Round trips of one message at a time, in ascending order.
fn round_trips(address: SocketAddr, count: usize) -> io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut message = [0; 100];
    let mut exchange = || -> io::Result<Duration> {
        let began = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        Ok(began.elapsed())
    };
    exchange()?;
    let mut all = (0..count).map(|_| exchange()).collect::<io::Result<Vec<_>>>()?;
    all.sort_unstable();
    Ok(all)
}

fn exactness(server: SocketAddr) -> io::Result<()> {
    let direct = round_trips(server, 2000)?;
    println!("round trip without a link: median {:?}", direct[direct.len() / 2]);
    println!(
        "{:>10} {:>12} {:>12} {:>12} {:>16}",
        "delay", "least over", "median over", "p99 over", "CPU a message"
    );
    for delay_us in [0, 50, 100, 500, 1000, 5000, 25_000, 125_000] {
        let delay = Duration::from_micros(delay_us);
        let count = (3_000_000 / (delay_us + 300)).clamp(20, 3000) as usize;
        let (address, end) = link(server, delay);
        let all = round_trips(address, count)?;
        let over = |share: f64| all[((count - 1) as f64 * share) as usize].saturating_sub(2 * delay);
        let processor = end() / (2 * count as u32);
        println!(
            "{:>10} {:>12} {:>12} {:>12} {:>16}",
            format!("{delay:?}"),
            format!("{:.1?}", over(0.0)),
            format!("{:.1?}", over(0.5)),
            format!("{:.1?}", over(0.99)),
            format!("{processor:.1?}")
        );
    }
    Ok(())
}

fn throughput(server: SocketAddr) -> io::Result<()> {
    let bytes = 200 << 20;
    for delay in [Duration::ZERO, Duration::from_millis(25)] {
        let (address, end) = link(server, delay);
        let stream = TcpStream::connect(address)?;
        let began = Instant::now();
        let mut writer = stream.try_clone()?;
        let writing = thread::spawn(move || writer.write_all(&vec![0; bytes]));
        io::copy(&mut (&stream).take(bytes as u64), &mut io::sink())?;
        let (took, processor) = (began.elapsed(), end());
        writing.join().expect("the writer did not panic")?;
        let mebibytes = f64::from(2 * (bytes >> 20) as u32);
        println!(
            "{delay:?}: {:.0} MiB/s both ways together, {:.0} us of CPU a MiB",
            mebibytes / took.as_secs_f64(),
            processor.as_secs_f64() * 1e6 / mebibytes
        );
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let server = echo()?;
    exactness(server)?;
    throughput(server)
}
