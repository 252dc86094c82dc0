//! What this partition says to others of its server, and what they say to it.

use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use stoa_front::FrontMessage;
use stoa_partition::Now;
use stoa_tree::Stamp;

impl Replica {
    /// Something that another partition of this server has to say, or this one to itself.
    pub(crate) fn receive_from_partition(&mut self, from: u8, message: ShardMessage, now: Now) {
        self.now = now;
        match message {
            ShardMessage::MayPrepare { term } => self.prepares_told(term),
            ShardMessage::Quiesce { op, is_quiet, asked } => self.quiesce_for(from, op, is_quiet, asked),
            ShardMessage::Quiesced(op, standing) => self.quiesced(from, op, standing.map(|it| *it)),
            ShardMessage::Prepare { op, asked, place, zxid, time_ms, step } => {
                self.prepare_step(from, op, (&asked, place), Stamp { zxid, time_ms }, &step);
            }
            ShardMessage::Prepared(op, step_prepared) => self.step_prepared(op, *step_prepared),
            ShardMessage::Decision(op, decision) => self.decision(from, op, *decision),
            ShardMessage::Timeline(message) => self.timeline_says(from, message),
            ShardMessage::StateReplaced { state, term } => self.replace_state(*state, term),
            ShardMessage::SnapshotWanted => self.request_snapshot(),
            ShardMessage::Grown { updates, bytes } => self.partition_has_grown(from, updates, bytes),
            ShardMessage::CatchUp => self.catch_up_for_first(),
            ShardMessage::CaughtUp(stamp) => self.caught_up(from, &stamp),
            ShardMessage::Clock(zxid) => self.sessions.read_only.seen(zxid),
            ShardMessage::Servers(list) => self.servers_told(list),
            ShardMessage::Follow { given, taken } => self.is_followed(given, taken),
            ShardMessage::Front(FrontMessage::Comes { taken, watches }) => {
                self.watches_come(from, taken, watches);
            }
            ShardMessage::Load(report) => self.load_told(from, *report),
            ShardMessage::Site(said) => self.site_news(from, *said),
            // These are for the fronts.
            ShardMessage::Front(FrontMessage::Client(..) | FrontMessage::WatermarkWanted { .. })
            | ShardMessage::Forwarded(..)
            | ShardMessage::Answer(..)
            | ShardMessage::Sessions { .. }
            | ShardMessage::Leaves { .. }
            | ShardMessage::Replaced
            | ShardMessage::Watermark { .. } => {}
        }
    }

    /// Says something to another thread of this server, or hears it itself.
    pub(crate) fn say(&mut self, to: u8, message: ShardMessage) {
        self.pass_on_messages();
        self.messages.push_back((to, message));
    }

    /// What the timeline has for others is said in its place among everything else.
    fn pass_on_messages(&mut self) {
        while let Some((to, message)) = self.timeline.poll_message() {
            self.messages.push_back((to, ShardMessage::Timeline(message)));
        }
    }

    /// Whether there is something for this server's threads.
    pub(crate) fn has_messages(&mut self) -> bool {
        self.pass_on_messages();
        !self.messages.is_empty()
    }

    /// The next thing for one of them.
    pub(crate) fn poll_message(&mut self) -> Option<(u8, ShardMessage)> {
        self.pass_on_messages();
        self.messages.pop_front()
    }
}
