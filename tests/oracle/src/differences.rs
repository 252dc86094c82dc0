//! Where the two servers may differ, and what is not asked of them.

/// A place where an answer is not compared byte for byte, or a request that is not sent.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// What it is about.
    pub subject: &'static str,
    /// What the oracle does.
    pub handling: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// Places where ZooKeeper's own answer is not fixed: two ZooKeepers differ there.
pub const NOT_FIXED: &[Allowance] = &[
    Allowance {
        subject: "zxids",
        handling: "compared by the write that they stand for",
        reason: "new sessions and failed writes use up a number in ZooKeeper",
    },
    Allowance {
        subject: "the zxid of a reply header that is no write's",
        handling: "compared by the last write that it reflects",
        reason: "as above",
    },
    Allowance {
        subject: "ctime, mtime",
        handling: "one time for each write, near the time of its reply",
        reason: "two processes, two readings of the clock",
    },
    Allowance {
        subject: "session ids, passwords",
        handling: "compared by the session that they stand for; a password by being zero or not",
        reason: "made up by the server",
    },
    Allowance {
        subject: "children, ephemerals, identities of whoAmI",
        handling: "compared as sets",
        reason: "they come from hash sets",
    },
    Allowance {
        subject: "an ACL with more than one digest entry",
        handling: "compared as a set",
        reason: "the scheme auth stands for the connection's identities, a hash set",
    },
    Allowance {
        subject: "events of one closed session",
        handling: "compared as a set for each connection",
        reason: "its ephemeral znodes are deleted in the order of a hash set",
    },
    Allowance {
        subject: "several requests in flight under a quota",
        handling: "quotas are set only while requests go one at a time",
        reason: "ZooKeeper checks a quota against what has been applied so far",
    },
    Allowance {
        subject: "writes in flight behind a setACL",
        handling: "a setACL is the last request of its burst",
        reason: "ZooKeeper judges them by the ACL that has been applied so far",
    },
    Allowance {
        subject: "requests in flight behind a create whose opcode and mode do not agree",
        handling: "such a create is the last request of its burst",
        reason: "while it is ordered, ZooKeeper takes the znode for what the mode says, then for what the opcode says",
    },
    Allowance {
        subject: "createTTL with a mode without TTL and a negative TTL",
        handling: "not sent",
        reason: "ZooKeeper stops serving",
    },
    Allowance {
        subject: "pings behind a request that ends the connection",
        handling: "only whether the connection ends is compared",
        reason: "ZooKeeper may still send an answer or two",
    },
    Allowance {
        subject: "auth, sasl, closeSession, unknown opcodes among other requests",
        handling: "sent alone",
        reason: "answered by another thread, or the connection ends before the answers before them",
    },
    Allowance {
        subject: "data of zookeeper_limits and zookeeper_stats",
        handling: "always well-formed",
        reason: "ZooKeeper stops serving when it cannot read them",
    },
    Allowance {
        subject: "the body of a multiRead whose header says that it failed",
        handling: "not compared",
        reason: "ZooKeeper sends the results up to the failure; no client reads a body behind an error",
    },
    Allowance {
        subject: "cached answers of getData",
        handling: "ZooKeeper's cache is switched off",
        reason: "it does not notice that the statistics of a quota change",
    },
];

/// Deliberate differences between Stoa and ZooKeeper.
pub const DELIBERATE: &[Allowance] = &[
    Allowance {
        subject: "deleteContainer from a client",
        handling: "not sent",
        reason: "Stoa answers NoAuth; ZooKeeper deletes the container or TTL znode without asking its ACL",
    },
    Allowance {
        subject: "createSession on an open connection",
        handling: "not sent",
        reason: "Stoa answers Unimplemented; ZooKeeper greets a second time, without a reply header",
    },
    Allowance {
        subject: "sasl to a server that does not know it",
        handling: "not sent",
        reason: "Stoa answers Unimplemented; ZooKeeper answers a null token as if all were well",
    },
    Allowance {
        subject: "pings among other requests",
        handling: "sent alone",
        reason: "Stoa answers them ahead of writes that are on their way to the disk",
    },
    Allowance {
        subject: "the zxid in the answer to an unknown opcode",
        handling: "not compared",
        reason: "Stoa sends the last zxid, ZooKeeper -1",
    },
    Allowance {
        subject: "characters beyond U+FFFF in sync and setWatches, which send a path back",
        handling: "not sent",
        reason: "ZooKeeper sends them as two surrogates, which is no UTF-8; no znode can have such a name",
    },
    Allowance {
        subject: "a null scheme in an ACL of several entries",
        handling: "not sent",
        reason: "Stoa answers InvalidACL, as both do for one entry; ZooKeeper answers MarshallingError",
    },
    Allowance {
        subject: "a hard quota that the operations of one multi exceed together",
        handling: "multis of one operation only while quotas are set",
        reason: "Stoa refuses the multi; ZooKeeper judges each operation alone and lets it through",
    },
    Allowance {
        subject: "requests somewhat longer than jute.maxbuffer",
        handling: "not sent",
        reason: "Stoa answers MarshallingError; ZooKeeper ends the connection",
    },
    Allowance {
        subject: "reads of the path \"\"",
        handling: "not sent",
        reason: "Stoa answers NoNode; ZooKeeper keeps the root under this name too",
    },
    Allowance {
        subject: "a null ACL in a create of a multi",
        handling: "not sent",
        reason: "Stoa answers InvalidACL, as both do outside of a multi; ZooKeeper answers MarshallingError",
    },
    Allowance {
        subject: "paths that are not UTF-8",
        handling: "not sent",
        reason: "Stoa answers MarshallingError; ZooKeeper reads each bad byte as U+FFFD",
    },
    Allowance {
        subject: "null paths in setData, setACL, sync, addWatch, checkWatches, removeWatches, setWatches",
        handling: "not sent",
        reason: "Stoa answers MarshallingError, as both do for other requests; ZooKeeper has no use for them either",
    },
];

/// What is not asked of a server with several partitions, besides.
pub const SEVERAL_PARTITIONS: &[Allowance] = &[
    Allowance {
        subject: "the zxid of a reply header",
        handling: "not compared; held to what it is good for, see `headers`",
        reason: "each partition has its own last write, and while a client watches several of them the zxid \
                 is lowered to where everything has been delivered; a ping is answered with 0",
    },
    Allowance {
        subject: "the zxid of a write whose reply need not say it",
        handling: "learned from the first Stat or event that shows it, in the order of the writes",
        reason: "the zxid of the header may be lowered",
    },
    Allowance {
        subject: "setWatches with the zxid of a write",
        handling: "sent with zxids of writes that both servers have shown",
        reason: "as above",
    },
    Allowance {
        subject: "events of one multi, and those that one setWatches brings",
        handling: "compared in order for each subtree right below the root",
        reason: "each partition has an order of its own; what is right is that all come before the reply",
    },
    Allowance {
        subject: "events of what another session did",
        handling: "waited for until there are as many as ZooKeeper has sent",
        reason: "they come from other threads, and a ping passes them",
    },
    Allowance {
        subject: "the end of a connection that a request asks for",
        handling: "waited for where ZooKeeper has ended it",
        reason: "it comes from the thread that answers the request; pings are answered until then",
    },
    Allowance {
        subject: "sessions that take turns",
        handling: "one besides the superuser's, and a sync on every partition at each turn",
        reason: "only what a session has been told itself is what it must be shown, as with several ZooKeepers",
    },
];
