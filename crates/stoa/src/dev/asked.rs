//! What a server is asked: what it is, and who it takes for the hub.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ADDRESS;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A reign, and the site that is the hub in it.
pub(super) type Reign = (u64, String);

/// What a server says that it is (leader, follower, observer or standalone), and who the hub is, where there are sites.
pub(super) async fn both(port: u16, admin_port: u16, has_sites: bool) -> (Option<String>, Option<Reign>) {
    let mode = async { mode(&exchange(port, "srvr").await?) };
    let hub = async {
        let asked = format!(
            "GET /commands/sites HTTP/1.1\r\nHost: {ADDRESS}:{admin_port}\r\nConnection: close\r\n\r\n"
        );
        if has_sites { hub(&exchange(admin_port, &asked).await?) } else { None }
    };
    tokio::join!(mode, hub)
}

async fn exchange(port: u16, asked: &str) -> Option<String> {
    let exchange = async {
        let mut stream = TcpStream::connect((ADDRESS, port)).await.ok()?;
        stream.write_all(asked.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await.ok()?;
        Some(answer)
    };
    timeout(PATIENCE, exchange).await.ok().flatten()
}

fn mode(answer: &str) -> Option<String> {
    let said = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name));
    let place = said("Forest: ").map(|place| format!(", {place}")).unwrap_or_default();
    Some(format!("{}{place}", said("Mode: ")?))
}

/// None of a server that has not joined the other sites: it would say what was once in its settings.
fn hub(answer: &str) -> Option<Reign> {
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let answer: Value = serde_json::from_str(body).ok()?;
    let (hub, reign) = (answer["hub"].as_u64()?, answer["reign"].as_u64()?);
    let known = answer["sites"].as_array()?.iter().find(|site| site["number"].as_u64() == Some(hub))?;
    Some((reign, known["site"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        assert_eq!(mode("Zxid: 0x1\nMode: leader\nNode count: 5\n").as_deref(), Some("leader"));
        let in_forest = "Mode: follower\nNode count: 5\nForest: leaf\n";
        assert_eq!(mode(in_forest).as_deref(), Some("follower, leaf"));
        assert_eq!(mode("This ZooKeeper instance is not currently serving requests\n"), None);
        let sites = r#""sites": [{"site": "a", "number": 1}, {"site": "b", "number": 2}]"#;
        let answer = |fields: &str| hub(&format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{{{fields}, {sites}}}"));
        assert_eq!(answer(r#""hub": 2, "reign": 3"#), Some((3, "b".to_owned())));
        assert_eq!(answer(r#""hub": 3, "reign": 3"#), None);
        assert_eq!(answer(r#""hub": null, "reign": 0"#), None);
    }
}
