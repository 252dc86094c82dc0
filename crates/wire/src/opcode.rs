//! Operation codes.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal, $short:literal;)*) => {
        /// What a request asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum Opcode {
            $($(#[$doc])* $name = $code,)*
        }

        impl Opcode {
            /// Every opcode that we know.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The opcode with this number.
            #[must_use]
            #[inline]
            pub fn from_i32(code: i32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name in ZooKeeper's documentation.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Its four-letter name in the output of the word `cons`.
            #[must_use]
            pub fn short_name(self) -> &'static str {
                match self { $(Self::$name => $short,)* }
            }
        }
    };
}

impl Opcode {
    /// Whether the server that is asked answers by itself, from its own state.
    #[must_use]
    #[inline]
    pub fn is_read(self) -> bool {
        !matches!(
            self,
            Self::Create
                | Self::Create2
                | Self::CreateContainer
                | Self::CreateTtl
                | Self::Delete
                | Self::DeleteContainer
                | Self::SetData
                | Self::SetAcl
                | Self::Multi
                | Self::CloseSession
                | Self::Sync
                | Self::Reconfig
                | Self::Sasl
                | Self::CreateSession
        )
    }
}

opcodes! {
    /// Create a znode; answers its path.
    Create = 1, "create", "CREA";
    /// Delete a znode.
    Delete = 2, "delete", "DELE";
    /// Read a znode's Stat.
    Exists = 3, "exists", "EXIS";
    /// Read a znode's data.
    GetData = 4, "getData", "GETD";
    /// Set a znode's data.
    SetData = 5, "setData", "SETD";
    /// Read a znode's ACL.
    GetAcl = 6, "getACL", "GETA";
    /// Set a znode's ACL.
    SetAcl = 7, "setACL", "SETA";
    /// List children.
    GetChildren = 8, "getChildren", "GETC";
    /// Wait until everything ordered before has been applied.
    Sync = 9, "sync", "SYNC";
    /// Heartbeat.
    Ping = 11, "ping", "PING";
    /// List children, with the Stat.
    GetChildren2 = 12, "getChildren2", "GETC";
    /// Check a version.
    Check = 13, "check", "CHEC";
    /// Several writes, all or none.
    Multi = 14, "multi", "MULT";
    /// Create a znode; answers its path and Stat.
    Create2 = 15, "create2", "CREA";
    /// Change the members of the ensemble.
    Reconfig = 16, "reconfig", "RECO";
    /// Ask whether a watch is set.
    CheckWatches = 17, "checkWatches", "CHKW";
    /// Remove watches.
    RemoveWatches = 18, "removeWatches", "REMW";
    /// Create a container znode.
    CreateContainer = 19, "createContainer", "CREA";
    /// Delete an empty container or a TTL znode: the server's own.
    DeleteContainer = 20, "deleteContainer", "DELE";
    /// Create a TTL znode.
    CreateTtl = 21, "createTTL", "CREA";
    /// Several reads.
    MultiRead = 22, "multiRead", "MLTR";
    /// Add an identity to the connection.
    Auth = 100, "auth", "AUTH";
    /// Set watches again after a reconnect.
    SetWatches = 101, "setWatches", "SETW";
    /// SASL exchange.
    Sasl = 102, "sasl", "SASL";
    /// List the session's ephemeral znodes.
    GetEphemerals = 103, "getEphemerals", "GETE";
    /// Count the znodes below a znode.
    GetAllChildrenNumber = 104, "getAllChildrenNumber", "GETACN";
    /// Set watches again, persistent ones too.
    SetWatches2 = 105, "setWatches2", "STW2";
    /// Add a persistent watch.
    AddWatch = 106, "addWatch", "ADDW";
    /// List the identities of the connection.
    WhoAmI = 107, "whoAmI", "HOMI";
    /// Open a session: the server's own.
    CreateSession = -10, "createSession", "SESS";
    /// Close the session.
    CloseSession = -11, "closeSession", "CLOS";
}
