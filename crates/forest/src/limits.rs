//! How long and how much.

/// How many bytes may wait to be sent to a server before frames for it are dropped. So a server that reads slowly costs
/// whoever passes on to it no more memory than that.
pub const BACKLOG_BYTES_MAX: usize = 1 << 20;

/// Times and sizes by which the forest goes. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of appends that are held because something before them is missing.
    pub held_bytes_max: usize,
    /// The most appends that are held.
    pub held_count_max: usize,
    /// How long something may be missing before it is asked for, and how long an answer may take: at least, and longer
    /// where bodies come later than their headers.
    pub pull_after_us: u64,
    /// How long a tree may be silent before its children complain; the leader sends something every [`Limits::idle_us`].
    pub silence_us: u64,
    /// How much longer each level waits than the one above it, so that the leader hears first of the silence of those
    /// who are silent because they hear nothing themselves.
    pub silence_step_us: u64,
    /// How often a server says again what it has, about: with an idle frame, so that who hears nothing says nothing.
    pub repeat_us: u64,
    /// How often the leader is sent acknowledgements by one server at most. On other ways they wait for nothing.
    pub acknowledge_us: u64,
    /// Appends below this many bytes go down two trees whole; others down one, and their headers down another one.
    pub whole_twice_below: usize,
    /// How many appends with positions may be on their way before the next one waits and becomes larger.
    pub window: usize,
    /// How long a tree may be without a frame before the leader sends an idle one.
    pub idle_us: u64,
    /// Complaints about one server count together when they come within this time.
    pub complaints_us: u64,
    /// How long a server is aside the first time.
    pub aside_us: u64,
    /// How long a server is aside at most: the time doubles each time, and counts anew when it was well for this long.
    pub aside_max_us: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            held_bytes_max: 16 << 20,
            held_count_max: 4096,
            pull_after_us: 5_000,
            silence_us: 125_000,
            silence_step_us: 5_000,
            repeat_us: 250_000,
            acknowledge_us: 250,
            whole_twice_below: 2 << 10,
            window: 4,
            idle_us: 60_000,
            complaints_us: 300_000,
            aside_us: 5_000_000,
            aside_max_us: 300_000_000,
        }
    }
}
