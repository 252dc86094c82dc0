//! The commands of ZooKeeper's admin server.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::connection::Deadline;
use super::forest::forest;
use super::{Admin, Unanswered, json_response, render};
use crate::metrics::Figures;
use crate::view::SiteOrder;
use crate::view::{LostAsked, Mode, Moved, Question, SnapshotDone};
use crate::words::NOT_SERVING;

/// How long a snapshot may take.
const SNAPSHOT_TIME: Duration = Duration::from_secs(600);
/// How long a move may take, and how often is asked.
const MOVE_TIME: Duration = Duration::from_secs(8);
const MOVE_POLL: Duration = Duration::from_millis(5);
/// How long it may take to read what is lost, and how many updates are told where nothing is said.
const LOST_TIME: Duration = Duration::from_secs(120);
const LOST_UPDATES: usize = 1000;
/// Time for the reply after it.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// What a query says.
pub(super) type Parameters = HashMap<String, String>;

macro_rules! commands {
    ($($command:ident [$($name:literal),+];)+) => {
        /// A command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Command { $($command),+ }

        /// Every command with its names; the first is the one that answers carry.
        pub(super) const COMMANDS: &[(&[&str], Command)] = &[$((&[$($name),+], Command::$command)),+];
    };
}

commands! {
    ConnectionStatReset ["connection_stat_reset", "crst"];
    Configuration ["configuration", "conf", "config"];
    Connections ["connections", "cons"];
    Dirs ["dirs"];
    Dump ["dump"];
    Ensemble ["ensemble"];
    Environment ["environment", "env", "envi"];
    Forest ["forest"];
    GetTraceMask ["get_trace_mask", "gtmk"];
    Hash ["hash"];
    InitialConfiguration ["initial_configuration", "icfg"];
    IsReadOnly ["is_read_only", "isro"];
    LastSnapshot ["last_snapshot", "lsnp"];
    Leader ["leader", "lead"];
    Monitor ["monitor", "mntr"];
    Move ["move"];
    Observers ["observers", "obsr"];
    Partitions ["partitions"];
    Readers ["readers"];
    ObserverConnectionStatReset ["observer_connection_stat_reset", "orst"];
    Ruok ["ruok"];
    SetTraceMask ["set_trace_mask", "stmk"];
    ServerStats ["server_stats", "srvr"];
    Sites ["sites"];
    SitesAdd ["sites_add"];
    SitesLose ["sites_lose"];
    SitesLost ["sites_lost"];
    SitesLostData ["sites_lost_data"];
    SitesPromote ["sites_promote"];
    SitesRejoin ["sites_rejoin"];
    SitesRemove ["sites_remove"];
    SitesUpgrade ["sites_upgrade"];
    Snapshot ["snapshot", "snap"];
    Stats ["stats", "stat"];
    StatReset ["stat_reset", "srst"];
    SystemProperties ["system_properties", "sysp"];
    Token ["token"];
    VotingView ["voting_view"];
    Watches ["watches", "wchc"];
    WatchesByPath ["watches_by_path", "wchp"];
    WatchSummary ["watch_summary", "wchs"];
    ZabState ["zabstate"];
}

/// What a command answers.
pub(super) struct Reply {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Map<String, Value>,
}

impl Reply {
    /// Data, and after it the two fields that every answer has: `command`, and `error` unless the data
    /// has one of its own.
    fn new(name: &str, data: Map<String, Value>) -> Reply {
        let mut body = data;
        body.insert("command".to_owned(), name.into());
        body.entry("error").or_insert(Value::Null);
        Reply { status: StatusCode::OK, headers: Vec::new(), body }
    }

    fn error(name: &str, status: StatusCode, error: &str) -> Reply {
        let mut reply = Reply::new(name, Map::new());
        reply.status = status;
        reply.body.insert("error".to_owned(), error.into());
        reply
    }

    /// A command that is not carried out.
    pub(super) fn refused(command: Command, status: StatusCode, why: &str) -> Reply {
        Reply::error(command.name(), status, why)
    }

    /// There is no such command; the status is 200 all the same, as it is in ZooKeeper.
    pub(super) fn unknown(name: &str) -> Reply {
        Reply::error(name, StatusCode::OK, &format!("Unknown command: {name}"))
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &Value::Object(self.body));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

impl Command {
    /// The command with this name, be it a short one.
    pub(super) fn by_name(name: &str) -> Option<Command> {
        COMMANDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, command)| *command)
    }

    /// The name that answers carry.
    pub(super) fn name(self) -> &'static str {
        let (names, _) = COMMANDS.iter().find(|(_, command)| *command == self).expect("every one is listed");
        names[0]
    }

    /// Whether it changes anything, or tells what only who may do everything is told, and so is asked for by POST, by somebody who may.
    pub(super) fn changes(self) -> bool {
        use Command::{
            ConnectionStatReset, Move, ObserverConnectionStatReset, SetTraceMask, SitesLostData, Snapshot,
            StatReset,
        };
        self.is_of_sites()
            || matches!(
                self,
                ConnectionStatReset
                    | Move
                    | ObserverConnectionStatReset
                    | SetTraceMask
                    // It changes nothing, but tells what ACLs keep from others.
                    | SitesLostData
                    | Snapshot
                    | StatReset
            )
    }

    /// Whether it changes something of the sites.
    pub(super) fn is_of_sites(self) -> bool {
        use Command::{SitesAdd, SitesLose, SitesPromote, SitesRejoin, SitesRemove, SitesUpgrade};
        matches!(self, SitesAdd | SitesLose | SitesPromote | SitesRejoin | SitesRemove | SitesUpgrade)
    }

    /// It is asked for by other methods, which are these.
    pub(super) fn not_allowed(self, allowed: &str) -> Reply {
        let why = format!(
            "this command {}, and is asked for by {allowed}",
            match self.changes() {
                true => "changes something",
                false => "only reads",
            }
        );
        let mut reply = Reply::refused(self, StatusCode::METHOD_NOT_ALLOWED, &why);
        reply.headers = vec![("allow", allowed.to_owned())];
        reply
    }

    /// Carries out a command that is answered at once.
    pub(super) async fn run(self, admin: &Admin, parameters: &Parameters) -> Reply {
        match self.data(admin, parameters).await {
            Ok(data) => Reply::new(self.name(), data),
            // With status 200, as in ZooKeeper.
            Err(Unanswered) => Reply::error(self.name(), StatusCode::OK, NOT_SERVING),
        }
    }

    async fn data(self, admin: &Admin, parameters: &Parameters) -> Result<Map<String, Value>, Unanswered> {
        let process = &admin.process;
        Ok(match self {
            Command::Environment => {
                process.environment().into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
            }
            Command::GetTraceMask => fields(json!({ "tracemask": process.trace_mask() })),
            Command::SetTraceMask => set_trace_mask(admin, parameters),
            Command::SystemProperties => render::properties(&process.settings),
            // What is missing for joining the others is told before that is done.
            Command::Sites => render::sites(admin.ask_even_looking(Question::Stats).await?.sites.as_ref()),
            Command::Forest => forest(&*admin.ask_even_looking(Question::Stats).await?),
            Command::Readers => render::readers(&admin.ask_even_looking(Question::Stats).await?.readers),
            Command::Ensemble => render::ensemble(&*admin.ask_even_looking(Question::Stats).await?),
            Command::ZabState => match admin.ask_even_looking(Question::Stats).await {
                Ok(stats) => render::zab_state(&stats),
                Err(Unanswered) => render::no_zab_state(),
            },

            Command::ConnectionStatReset => {
                admin.ask(Question::ResetConnections).await?;
                Map::new()
            }
            Command::StatReset => {
                admin.ask(Question::ResetStats).await?;
                Map::new()
            }
            Command::Connections => render::connections(&admin.ask(Question::Connections).await?),
            Command::Dirs => render::dirs(&*admin.ask(Question::Stats).await?),
            Command::Dump => {
                let mode = admin.ask(Question::Stats).await?.mode;
                render::dump(&admin.ask(Question::Sessions).await?, mode)
            }
            Command::Partitions => {
                let path = parameters.get("path").cloned();
                let balance = admin.ask(|reply| Question::Balance(path, reply)).await?;
                render::partitions(&admin.ask(Question::Partitions).await?, &balance)
            }
            Command::Token => token(admin, parameters).await?,
            Command::Hash => render::digests(&admin.ask(Question::Digests).await?),
            Command::Leader => render::leader(&*admin.ask(Question::Stats).await?),
            Command::Observers => render::observers(&*admin.ask(Question::Stats).await?),
            Command::VotingView => render::voting_view(&*admin.ask(Question::Stats).await?),
            Command::LastSnapshot => render::last_snapshot(&*admin.ask(Question::Stats).await?),
            Command::Monitor => render::monitor(&Figures::now(*admin.ask(Question::Stats).await?)),
            Command::ServerStats => render::server_stats(&*admin.ask(Question::Stats).await?),
            Command::Stats => {
                let mut data = render::server_stats(&*admin.ask(Question::Stats).await?);
                data.extend(render::connections_in_short(&admin.ask(Question::Connections).await?));
                data
            }
            Command::Watches => render::watches(&admin.ask(Question::Watches).await?),
            Command::WatchesByPath => render::watches_by_path(&admin.ask(Question::Watches).await?),
            Command::WatchSummary => render::watch_summary(&admin.ask(Question::WatchSummary).await?),
            Command::IsReadOnly => {
                let mode = admin.ask(Question::Stats).await?.mode;
                fields(json!({ "read_only": mode == Mode::ReadOnly }))
            }

            // From here on nothing is asked of the partition, but like ZooKeeper only a server that
            // serves answers.
            _ if !process.is_serving() => return Err(Unanswered),
            Command::Configuration => render::configuration(process),
            Command::InitialConfiguration => {
                fields(json!({ "initial_configuration": render::as_toml(&process.settings) }))
            }
            // The others have nothing to tell, or are carried out elsewhere, since they take their time.
            _ => Map::new(),
        })
    }
}

/// The fields of an object.
pub(super) fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Who holds the token of a path.
async fn token(admin: &Admin, parameters: &Parameters) -> Result<Map<String, Value>, Unanswered> {
    let Some(path) = parameters.get("path").filter(|path| stoa_wire::path::is_valid(path)) else {
        return Ok(fields(json!({ "error": "it takes a path: /commands/token?path=/a" })));
    };
    let holder = admin.ask(|reply| Question::Holder(path.clone(), reply)).await?;
    Ok(render::token(path, holder.as_ref()))
}

fn set_trace_mask(admin: &Admin, parameters: &Parameters) -> Map<String, Value> {
    let Some(text) = parameters.get("traceMask") else {
        return fields(json!({ "error": "setTraceMask requires long traceMask argument" }));
    };
    match text.parse() {
        Ok(mask) => {
            admin.process.set_trace_mask(mask);
            fields(json!({ "tracemask": mask }))
        }
        Err(_) => {
            let error = format!("setTraceMask requires long traceMask argument, got {text}");
            fields(json!({ "error": error }))
        }
    }
}

/// Has a subtree moved, and answers when that is done or refused.
pub(super) async fn move_subtree(admin: &Admin, parameters: &Parameters) -> Reply {
    let refused = |status, why: &str| Reply::refused(Command::Move, status, why);
    let to = parameters.get("to").and_then(|to| to.parse().ok());
    let (Some(path), Some(to)) = (parameters.get("path"), to) else {
        return refused(
            StatusCode::BAD_REQUEST,
            "it takes a path and a partition: /commands/move?path=/a&to=2",
        );
    };
    match moved(admin, path, to).await {
        Ok(Ok(Moved { refused: Some(why), .. })) => refused(StatusCode::CONFLICT, &why),
        Ok(Ok(moved)) => Reply::new(Command::Move.name(), fields(render::moved(&moved))),
        Ok(Err(why)) => refused(StatusCode::CONFLICT, &why),
        Err(Unanswered) => refused(StatusCode::SERVICE_UNAVAILABLE, NOT_SERVING),
    }
}

/// Has something done with the sites. It is answered when that has begun: `/commands/sites` tells what becomes of it.
pub(super) async fn order_sites(command: Command, admin: &Admin, parameters: &Parameters) -> Reply {
    let refused = |status, why: &str| Reply::refused(command, status, why);
    let named = || parameters.get("site").filter(|site| !site.is_empty()).cloned();
    let lost = parameters.get("lose").map(String::as_str).unwrap_or_default();
    let lost = lost.split(',').filter(|site| !site.is_empty()).map(str::to_owned).collect();
    let order = match command {
        Command::SitesPromote => Some(SiteOrder::Promote(lost)),
        Command::SitesRejoin => Some(SiteOrder::Rejoin),
        Command::SitesUpgrade => Some(SiteOrder::Upgrade),
        Command::SitesLose => named().map(SiteOrder::Lose),
        Command::SitesRemove => named().map(SiteOrder::Remove),
        _ => named().map(SiteOrder::Add),
    };
    let Some(order) = order else {
        return refused(StatusCode::BAD_REQUEST, "it takes a site: ?site=frankfurt");
    };
    let done = order.to_string();
    match admin.ask_even_looking(|reply| Question::Order(order, reply)).await {
        Ok(Ok(())) => Reply::new(command.name(), fields(json!({ "done": done }))),
        Ok(Err(why)) => refused(StatusCode::CONFLICT, &why),
        Err(Unanswered) => refused(StatusCode::SERVICE_UNAVAILABLE, NOT_SERVING),
    }
}

/// Tells what a site that was given up alone has, which is read from the log's files.
pub(super) async fn lost(
    command: Command,
    admin: &Admin,
    parameters: &Parameters,
    deadline: &Deadline,
) -> Reply {
    let number = |name: &str| parameters.get(name).filter(|text| !text.is_empty());
    let after = number("after").map_or(Ok(0), |text| {
        i64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).map_err(|_| "after")
    });
    let most = number("limit").map_or(Ok(LOST_UPDATES), |text| text.parse().map_err(|_| "limit"));
    let (after_zxid, most) = match (after, most) {
        (Ok(after), Ok(most)) => (after, most),
        (Err(bad), _) | (_, Err(bad)) => {
            let why = format!("{bad} is no number: /commands/sites_lost?after=0x5003&limit=100");
            return Reply::refused(command, StatusCode::BAD_REQUEST, &why);
        }
    };
    let asked = LostAsked { after_zxid, most, with_data: command == Command::SitesLostData };
    deadline.put_off(LOST_TIME + REPLY_TIME);
    let told = admin.ask_even_looking_for(LOST_TIME, |reply| Question::Lost(asked, reply)).await;
    deadline.put_off(REPLY_TIME);
    match told {
        Ok(Ok(lost)) => Reply::new(command.name(), render::lost(&lost)),
        // With status 200, as other views that a server does not have.
        Ok(Err(why)) => Reply::error(command.name(), StatusCode::OK, &why),
        Err(Unanswered) => Reply::refused(command, StatusCode::SERVICE_UNAVAILABLE, NOT_SERVING),
    }
}

/// What becomes of a move; `Err` when it is not begun.
async fn moved(admin: &Admin, path: &str, to: u8) -> Result<Result<Moved, String>, Unanswered> {
    let known = admin.ask(|reply| Question::Balance(None, reply)).await?.moves;
    if let Err(why) = admin.ask(|reply| Question::Move(path.to_owned(), to, reply)).await? {
        return Ok(Err(why));
    }
    let began = tokio::time::Instant::now();
    while began.elapsed() < MOVE_TIME {
        let moves = admin.ask(|reply| Question::Balance(None, reply)).await?.moves;
        let is_it =
            |moved: &&Moved| moved.path == path && moved.to == u64::from(to) && !known.contains(moved);
        if let Some(moved) = moves.iter().rev().find(is_it) {
            return Ok(Ok(moved.clone()));
        }
        tokio::time::sleep(MOVE_POLL).await;
    }
    Ok(Err("nothing is known of it yet; /commands/partitions will tell".to_owned()))
}

/// Takes a snapshot and answers when it is on disk.
pub(super) async fn snapshot(admin: &Admin, deadline: &Deadline) -> Reply {
    let name = Command::Snapshot.name();
    deadline.put_off(SNAPSHOT_TIME + REPLY_TIME);
    let done = admin.ask_within(SNAPSHOT_TIME, Question::Snapshot).await;
    deadline.put_off(REPLY_TIME);
    match done {
        Ok(Ok(SnapshotDone { zxid, bytes })) => {
            let zxid = format!("0x{zxid:x}");
            let mut reply = Reply::new(name, fields(json!({ "last_zxid": zxid, "snapshot_size": bytes })));
            reply.headers = vec![("last_zxid", zxid), ("snapshot_size", bytes.to_string())];
            reply
        }
        Ok(Err(why)) => Reply::error(name, StatusCode::INTERNAL_SERVER_ERROR, &why),
        Err(Unanswered) => Reply::error(name, StatusCode::SERVICE_UNAVAILABLE, NOT_SERVING),
    }
}
