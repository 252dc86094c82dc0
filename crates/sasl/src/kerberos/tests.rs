use super::der::{put, put_field, put_message, put_number, put_octets, put_sequence, put_time};
use super::*;

const KEYTAB: &[u8] = include_bytes!("../../tests/recorded/server.keytab");
const NAME: &str = "zookeeper/localhost@STOA.TEST";

/// 2024-02-29, one second before midnight.
const NOW_MS: u64 = 1_709_251_199_000;
const NOW: &[u8; 15] = b"20240229235959Z";

const SESSION: [u8; 16] = [5; 16];

fn service() -> Service {
    Service::new(KEYTAB, NAME, Vec::new()).unwrap()
}

/// A client whose messages can be wrong in many ways.
#[derive(Clone)]
struct Client {
    service: Vec<&'static str>,
    name: Vec<&'static str>,
    said_name: &'static str,
    realm: &'static str,
    etype: u32,
    version: u32,
    flags: u32,
    transited: &'static [u8],
    start: &'static [u8; 15],
    end: &'static [u8; 15],
    time: &'static [u8; 15],
    gss_flags: u32,
    restriction: Option<u32>,
    options: u32,
}

fn client() -> Client {
    Client {
        service: vec!["zookeeper", "localhost"],
        name: vec!["bob"],
        said_name: "bob",
        realm: "STOA.TEST",
        etype: 18,
        version: 2,
        flags: 0,
        transited: b"",
        start: NOW,
        end: b"20240301095959Z",
        time: NOW,
        gss_flags: 0,
        restriction: None,
        options: 0,
    }
}

fn text(text: &str) -> Vec<u8> {
    put(0x1b, text.as_bytes())
}

fn name(parts: &[&str]) -> Vec<u8> {
    let parts: Vec<_> = parts.iter().map(|part| text(part)).collect();
    put_sequence(&[put_field(0, &put_number(1)), put_field(1, &put_sequence(&parts))])
}

fn bits(flags: u32) -> Vec<u8> {
    put(0x03, &[&[0][..], &flags.to_be_bytes()].concat())
}

fn sealed(etype: u32, version: Option<u32>, cipher: &[u8]) -> Vec<u8> {
    let version = version.map(|version| put_field(1, &put_number(version))).unwrap_or_default();
    put_sequence(&[put_field(0, &put_number(etype)), version, put_field(2, &put_octets(cipher))])
}

fn key(etype: u32, bytes: &[u8]) -> Vec<u8> {
    put_sequence(&[put_field(0, &put_number(etype)), put_field(1, &put_octets(bytes))])
}

impl Client {
    fn ticket(&self) -> Vec<u8> {
        let transited =
            put_sequence(&[put_field(0, &put_number(1)), put_field(1, &put_octets(self.transited))]);
        put_message(
            0x63,
            &[
                put_field(0, &bits(self.flags)),
                put_field(1, &key(17, &SESSION)),
                put_field(2, &text(self.realm)),
                put_field(3, &name(&self.name)),
                put_field(4, &transited),
                put_field(5, &put_time(NOW)),
                put_field(6, &put_time(self.start)),
                put_field(7, &put_time(self.end)),
            ],
        )
    }

    fn authenticator(&self) -> Vec<u8> {
        let mut checksum = vec![16, 0, 0, 0];
        checksum.resize(20, 0);
        checksum.extend(self.gss_flags.to_le_bytes());
        let checksum =
            put_sequence(&[put_field(0, &put_number(0x8003)), put_field(1, &put_octets(&checksum))]);
        let restriction = self.restriction.map(|kind| {
            let one = put_sequence(&[put_field(0, &put_number(kind)), put_field(1, &put_octets(b""))]);
            put_field(8, &put_sequence(&[one]))
        });
        put_message(
            0x62,
            &[
                put_field(0, &put_number(5)),
                put_field(1, &text(self.realm)),
                put_field(2, &name(&[self.said_name])),
                put_field(3, &checksum),
                put_field(4, &put_number(999_999)),
                put_field(5, &put_time(self.time)),
                put_field(6, &key(17, &[6; 16])),
                put_field(7, &put_number(0x8000_0001)),
                restriction.unwrap_or_default(),
            ],
        )
    }

    fn token(&self) -> Vec<u8> {
        self.token_with(&self.authenticator())
    }

    fn token_with(&self, authenticator: &[u8]) -> Vec<u8> {
        let service = service();
        let (key, suite) = service.keys.iter().find(|(key, _)| key.etype == 18).unwrap();
        let ticket = suite.cipher().encrypt(&key.bytes, TICKET_REP, &self.ticket()).unwrap();
        let authenticator = CipherSuite::Aes128CtsHmacSha196
            .cipher()
            .encrypt(&SESSION, AP_REQ_AUTHENTICATOR, authenticator)
            .unwrap();
        let ticket = put_message(
            0x61,
            &[
                put_field(0, &put_number(5)),
                put_field(1, &text("STOA.TEST")),
                put_field(2, &name(&self.service)),
                put_field(3, &sealed(self.etype, Some(self.version), &ticket)),
            ],
        );
        let request = put_message(
            0x6e,
            &[
                put_field(0, &put_number(5)),
                put_field(1, &put_number(14)),
                put_field(2, &bits(self.options)),
                put_field(3, &ticket),
                put_field(4, &sealed(17, None, &authenticator)),
            ],
        );
        let name = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 1, 0];
        put(0x60, &[&name[..], &request].concat())
    }
}

fn accept(client: &Client) -> Result<Accepted, String> {
    service().accept(&client.token(), NOW_MS, [9; 32])
}

fn refusal(change: impl FnOnce(&mut Client)) -> String {
    let mut client = client();
    change(&mut client);
    accept(&client).err().expect("the client is refused")
}

#[test]
fn recorded_clients_are_let_in_while_their_time_is() {
    let now_ms = include_str!("../../tests/recorded/now_s").trim().parse::<u64>().unwrap() * 1000;
    for (token, has_reply) in [
        (&include_bytes!("../../tests/recorded/jdk-ap-req")[..], false),
        (include_bytes!("../../tests/recorded/jdk-ap-req-mutual"), true),
        (include_bytes!("../../tests/recorded/pure-sasl-ap-req"), true),
    ] {
        let service = service();
        let accepted = service.accept(token, now_ms, [9; 32]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(accepted.name, "bob@STOA.TEST");
        assert_eq!(accepted.reply.is_some(), has_reply);
        assert!(service.accept(token, now_ms, [9; 32]).err().unwrap().contains("used before"));
        let service = self::service();
        assert!(service.accept(token, now_ms + 600_000, [9; 32]).err().unwrap().contains("clocks"));
        assert!(service.accept(token, now_ms - 600_000, [9; 32]).err().unwrap().contains("clocks"));
        for at in 0..token.len() {
            let mut bad = token.to_vec();
            bad[at] ^= 0x20;
            // The name's type, the versions of keys and unused flags are nobody's proof.
            let _ = service.accept(&bad, now_ms, [9; 32]);
            assert!(service.accept(&token[..at], now_ms, [9; 32]).is_err());
        }
        assert!(service.accept(&[token, b"\0"].concat(), now_ms, [9; 32]).err().unwrap().contains("follows"));
    }
}

#[test]
fn a_client_is_let_in_by_its_ticket() {
    assert_eq!(accept(&client()).ok().unwrap().name, "bob@STOA.TEST");
    let two = Client { name: vec!["bob", "host"], ..client() };
    let same = Client { said_name: "bob", ..two };
    assert!(accept(&same).err().unwrap().contains("another one's"), "the authenticator has one part");
    let other = Client { realm: "OTHER", ..client() };
    assert_eq!(accept(&other).ok().unwrap().name, "bob@OTHER");
    let unknown_version = Client { version: 77, ..client() };
    assert!(accept(&unknown_version).is_ok(), "the key may have another number elsewhere");
}

#[test]
fn tickets_have_their_time() {
    assert!(refusal(|it| it.end = b"20240229235458Z").contains("the ticket expired 301 s ago"));
    assert!(accept(&Client { end: b"20240229235459Z", ..client() }).is_ok(), "five minutes are forgiven");
    assert!(refusal(|it| it.start = b"20240301000500Z").contains("is good in 301 s"));
    assert!(refusal(|it| it.time = b"20240301000500Z").contains("-301 s apart"));
    assert!(refusal(|it| it.time = b"20240229235458Z").contains("301 s apart"));
    assert!(refusal(|it| it.flags = INVALID).contains("not valid yet"));
}

#[test]
fn what_is_not_for_this_service_is_refused() {
    assert!(refusal(|it| it.service = vec!["zookeeper", "other"]).contains("zookeeper/other@STOA.TEST"));
    assert!(refusal(|it| it.service = vec!["zookeeper/localhost"]).contains("the ticket is for"));
    assert!(refusal(|it| it.said_name = "alice").contains("another one's"));
    assert!(refusal(|it| it.etype = 23).contains("arcfour-hmac"));
    assert!(refusal(|it| it.etype = 17).contains("is the keytab the newest?"));
    assert!(refusal(|it| it.options = 1 << 30).contains("to a user"));
    assert!(refusal(|it| it.gss_flags = DCE_STYLE).contains("DCE"));
    assert!(refusal(|it| it.restriction = Some(8)).contains("authenticator is malformed"));
    assert!(accept(&Client { restriction: Some(1), ..client() }).is_ok());
}

#[test]
fn names_that_look_like_others_are_refused() {
    for (part, said) in
        [("bob/admin", "bob/admin"), ("a@b", "a@b"), ("a\\b", "a\\b"), ("a\nb", "a\nb"), ("", "")]
    {
        let message = refusal(|it| (it.name, it.said_name) = (vec![part], said));
        assert!(message.contains("separator"), "{message}");
    }
}

#[test]
fn other_realms_on_the_way_have_to_be_checked_by_a_kdc() {
    let far = Client { realm: "FAR", transited: b"MIDDLE", ..client() };
    assert!(accept(&far).err().unwrap().contains("no KDC has checked"));
    assert!(accept(&Client { flags: TRANSIT_CHECKED, ..far }).is_ok());
}

#[test]
fn who_wants_proof_gets_it() {
    for client in [Client { gss_flags: MUTUAL, ..client() }, Client { options: 1 << 29, ..client() }] {
        let reply = accept(&client).ok().unwrap().reply.unwrap();
        assert_eq!(reply[3..16], [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 2, 0]);
    }
    assert_eq!(accept(&client()).ok().unwrap().reply, None);
}

/// What a client says in one login is worth nothing in another one, even if the server has forgotten the first.
#[test]
fn each_login_of_who_wants_proof_has_a_key_of_its_own() {
    let client = Client { gss_flags: MUTUAL, ..client() };
    let token = client.token();
    let context = |random| service().accept(&token, NOW_MS, random).ok().unwrap().context;
    let said = |mut context: Context| context.wrap(b"said").unwrap();
    assert_eq!(said(context([9; 32])), said(context([9; 32])));
    assert_ne!(said(context([9; 32])), said(context([8; 32])));
}

/// Whoever has a ticket may encrypt what it likes.
#[test]
fn no_authenticator_does_harm() {
    let service = service();
    let good = client().authenticator();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] = bad[at].wrapping_add(0x81);
        for authenticator in [&bad, &good[..at]] {
            let token = client().token_with(authenticator);
            let _ = service.accept(&token, NOW_MS, [9; 32]);
        }
    }
    assert!(service.accept(&client().token_with(b""), NOW_MS, [9; 32]).is_err());
    assert!(service.accept(&client().token(), NOW_MS, [9; 32]).is_ok());
}

#[test]
fn a_keytab_has_to_have_a_key() {
    let error = |keytab: &[u8], name: &str| Service::new(keytab, name, Vec::new()).err().unwrap();
    assert!(error(b"", NAME).contains("does not begin with 05 02"));
    assert!(error(b"\x05\x01", NAME).contains("does not begin with 05 02"));
    assert!(error(&KEYTAB[..KEYTAB.len() - 1], NAME).contains("the entry at byte"));
    assert!(error(KEYTAB, "zookeeper/elsewhere@STOA.TEST").contains("other/localhost@STOA.TEST"));
    assert!(error(KEYTAB, "zookeeper/localhost@OTHER").contains("no key of zookeeper/localhost@OTHER"));
    assert_eq!(Service::new(KEYTAB, "zookeeper/localhost", Vec::new()).ok().unwrap().realm(), "STOA.TEST");
    // The same keys as if they were of RC4.
    let mut weak = KEYTAB.to_vec();
    for at in 0..weak.len() - 4 {
        if weak[at..at + 4] == [0, 18, 0, 32] || weak[at..at + 4] == [0, 17, 0, 16] {
            weak[at + 1] = 23;
        }
    }
    assert!(error(&weak, NAME).contains("[\"arcfour-hmac\", \"arcfour-hmac\"]"));
    for at in 0..KEYTAB.len() {
        let mut bad = KEYTAB.to_vec();
        bad[at] ^= 0xff;
        let _ = Service::new(&bad, NAME, Vec::new());
    }
}
