//! `stoa sites lost`: asked of a server of the site that was given up, while it runs and serves nobody.

use serde_json::Value;

use super::list::List;
use super::{LostArgs, LostPart, Summary, Update, whole, zxid};
use crate::admin::Admin;
use crate::failure::{Failure, Result};
use crate::shell::ShellArgs;

/// So many updates are asked for at once.
const PAGE: u64 = 10_000;

/// Lists what the server at `admin` has.
///
/// # Errors
/// Why not.
pub(crate) fn run(args: &LostArgs, admin: &str, shell: &ShellArgs) -> Result<()> {
    let admin = Admin::new(admin, shell.tls()?)?.patient();
    let mut list = List::new(args, shell)?;
    let (mut after, mut left) = (args.after, args.limit);
    loop {
        let (behind, most) = (format!("0x{after:x}"), left.min(PAGE).to_string());
        let about = [("after", behind.as_str()), ("limit", most.as_str())];
        let answer = match args.data {
            true => admin.order_about("sites_lost_data", &about, shell.first_auth())?,
            false => admin.command_about("sites_lost", &about)?,
        };
        let (updates, summary) = read(&answer).ok_or_else(|| Failure::failed(unreadable()))?;
        list.show(&updates)?;
        left -= left.min(updates.len() as u64);
        match updates.last() {
            Some(last) if summary.are_more && left > 0 => after = last.zxid,
            _ => {
                list.end(answer["site"].as_str().unwrap_or("the site"), &summary)?;
                return whole(&summary);
            }
        }
    }
}

fn unreadable() -> &'static str {
    "the server has answered something else than a list of updates: it has another release"
}

fn read(answer: &Value) -> Option<(Vec<Update>, Summary)> {
    let updates = answer["updates"].as_array()?.iter().map(update).collect::<Option<Vec<_>>>()?;
    let summary = Summary {
        kept: answer["kept_zxid"]
            .as_str()?
            .split(',')
            .map(zxid)
            .collect::<std::result::Result<_, _>>()
            .ok()?,
        count: answer["lost_updates"].as_u64()?,
        are_more: answer["are_more"].as_bool()?,
        is_all: answer["is_all"].as_bool()?,
    };
    Some((updates, summary))
}

fn update(of: &Value) -> Option<Update> {
    let session = of["session"].as_str()?.strip_prefix("0x")?;
    Some(Update {
        zxid: zxid(of["zxid"].as_str()?).ok()?,
        time_ms: of["time"].as_i64()?,
        session: u64::from_str_radix(session, 16).ok()?.cast_signed(),
        is_multi: of["is_multi"].as_bool()?,
        // What is not is none of the server's state.
        is_committed: true,
        operations: of["operations"].as_array()?.iter().map(operation).collect::<Option<Vec<_>>>()?,
    })
}

fn operation(of: &Value) -> Option<LostPart> {
    let data = match of["data"].as_str() {
        Some(hex) => Some(bytes(hex)?),
        None => None,
    };
    Some(LostPart {
        name: of["operation"].as_str()?.to_owned(),
        path: of["path"].as_str().map(str::to_owned),
        bytes: of["bytes"].as_u64(),
        data,
    })
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair.filter(|pair| pair.len() == 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_server_answers_is_read() {
        let mut answer = json!({
            "site": "frankfurt", "kept_zxid": "0x3", "lost_updates": 7, "is_all": true, "are_more": true,
            "updates": [{
                "zxid": "0x803", "time": 5, "session": "0xf700000000000001", "position": 41, "is_multi": true,
                "operations": [
                    { "operation": "setData", "path": "/a", "bytes": 2, "data": "610a" },
                    { "operation": "end of a session", "path": null, "bytes": null }
                ]
            }]
        });
        let (updates, summary) = read(&answer).unwrap();
        assert_eq!(
            summary,
            Summary { kept: [3].into_iter().collect(), count: 7, are_more: true, is_all: true }
        );
        let operation = |name: &str, path: Option<&str>, data: Option<&[u8]>| LostPart {
            name: name.to_owned(),
            path: path.map(str::to_owned),
            bytes: data.map(|data| data.len() as u64),
            data: data.map(<[u8]>::to_vec),
        };
        let expected = Update {
            zxid: 0x803,
            time_ms: 5,
            session: 0xf700_0000_0000_0001_u64.cast_signed(),
            is_multi: true,
            is_committed: true,
            operations: vec![
                operation("setData", Some("/a"), Some(b"a\n")),
                operation("end of a session", None, None),
            ],
        };
        assert_eq!(updates, [expected]);
        answer["updates"][0]["operations"][0]["data"] = "61 ".into();
        assert_eq!(read(&answer), None);
    }
}
