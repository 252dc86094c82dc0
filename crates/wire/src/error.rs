//! Error codes.

use core::fmt;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// An error code of the protocol, as it stands in a reply header.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum ErrorCode {
            $(#[doc = $text] $(#[$doc])* $name = $code,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the protocol's table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code with this number.
            #[must_use]
            pub fn from_i32(code: i32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The code's name, as written in this crate.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

error_codes! {
    Ok = 0, "no error";
    SystemError = -1, "the server could not carry out the request";
    RuntimeInconsistency = -2, "not tried, because another operation of the multi failed";
    DataInconsistency = -3, "the server found inconsistent data";
    ConnectionLoss = -4, "the connection to the server was lost";
    MarshallingError = -5, "the request or reply could not be encoded or decoded";
    Unimplemented = -6, "the operation is not implemented";
    OperationTimeout = -7, "the operation timed out";
    BadArguments = -8, "an argument is not valid";
    UnknownSession = -12, "the session is not known";
    NewConfigNoQuorum = -13, "no quorum of the new configuration is connected";
    ReconfigInProgress = -14, "another reconfiguration is under way";
    NoNode = -101, "the znode does not exist";
    NoAuth = -102, "not permitted by the znode's ACL";
    BadVersion = -103, "the version does not match";
    NoChildrenForEphemerals = -108, "an ephemeral znode may not have children";
    NodeExists = -110, "the znode exists already";
    NotEmpty = -111, "the znode has children";
    SessionExpired = -112, "the session has expired";
    InvalidCallback = -113, "the callback is not valid";
    InvalidAcl = -114, "the ACL is not valid";
    AuthFailed = -115, "the client could not be authenticated";
    SessionMoved = -118, "the session has moved to another server";
    NotReadOnly = -119, "the server is read-only";
    EphemeralOnLocalSession = -120, "a local session may not create ephemeral znodes";
    NoWatcher = -121, "there is no such watch";
    RequestTimeout = -122, "the request was not completed in time";
    ReconfigDisabled = -123, "reconfiguration is disabled";
    SessionClosedRequireSaslAuth = -124, "the session was closed: the server requires SASL authentication";
    QuotaExceeded = -125, "the quota of the subtree is exceeded";
    ThrottledOp = -127, "the request was throttled";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), *self as i32, self.text())
    }
}

impl core::error::Error for ErrorCode {}
