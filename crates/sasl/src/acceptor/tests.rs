use super::*;

fn acceptor() -> Acceptor {
    Acceptor::new(Config::new().user("bob", Secret::new("secret"))).unwrap()
}

fn failure(step: Step) -> String {
    match step {
        Step::Failed(message) => message,
        other => panic!("{other:?}"),
    }
}

/// Said by pure-sasl 0.6.2 to the challenge with the nonce of 32 sevens, with its random cnonce.
const PURE_SASL: &[u8] = include_bytes!("../../tests/recorded/pure-sasl-response");

/// Said by the SaslClient of Java 17 to the same.
const JDK: &[u8] = include_bytes!("../../tests/recorded/jdk-response");

#[test]
fn recorded_clients_are_let_in() {
    for (response, rspauth) in [
        (PURE_SASL, &include_bytes!("../../tests/recorded/pure-sasl-rspauth")[..]),
        (JDK, &include_bytes!("../../tests/recorded/jdk-rspauth")[..]),
    ] {
        let mut exchange = acceptor().begin();
        assert!(matches!(exchange.step(b"", 0, [7; 32]), Step::Challenge(_)));
        let done = Step::Done { token: Some(rspauth.to_vec()), name: "bob".to_owned() };
        assert_eq!(exchange.step(response, 0, [0; 32]), done);
        assert_eq!(failure(exchange.step(response, 0, [0; 32])), "the exchange is over");
        // The nonce is another one the next time.
        let mut exchange = acceptor().begin();
        exchange.step(b"", 0, [8; 32]);
        assert!(failure(exchange.step(response, 0, [0; 32])).contains("nonce"));
    }
}

#[test]
fn the_first_token_tells_the_mechanism() {
    let mut exchange = acceptor().begin();
    assert!(failure(exchange.step(&[0x60, 3, 1, 2, 3], 0, [0; 32])).contains("GSSAPI, which has no keytab"));
    assert_eq!(failure(exchange.step(b"", 0, [0; 32])), "the exchange is over");
    assert!(failure(acceptor().begin().step(b"x", 0, [0; 32])).contains("0x78 is of neither"));
}

#[test]
fn tokens_are_bounded() {
    let long = vec![0; TOKEN_BYTES_MAX + 1];
    assert!(failure(acceptor().begin().step(&long, 0, [0; 32])).contains("more than 65536"));
}

#[test]
fn nothing_that_is_printed_has_a_password() {
    let config = Config::new().user("bob", Secret::new("hunter2"));
    assert!(!format!("{config:?}").contains("hunter2"));
    assert!(!format!("{:?}", Acceptor::new(config).unwrap()).contains("hunter2"));
}

#[test]
fn a_configuration_is_checked() {
    assert_eq!(Acceptor::new(Config::new()).unwrap_err().to_string(), "SASL has neither users nor a keytab");
    let config = Config::new().user("bob", Secret::new("x")).rules("NONE");
    assert!(Acceptor::new(config).unwrap_err().to_string().contains("rule 1"));
}

#[test]
fn both_mechanisms_are_served_at_once() {
    let keytab = include_bytes!("../../tests/recorded/server.keytab");
    let now_ms = include_str!("../../tests/recorded/now_s").trim().parse::<u64>().unwrap() * 1000;
    let config = Config::new().keytab(keytab, "zookeeper/localhost");
    let only_kerberos = Acceptor::new(config.clone()).unwrap();
    assert!(
        failure(only_kerberos.begin().step(b"", now_ms, [7; 32])).contains("DIGEST-MD5, which has no users")
    );
    let both = Acceptor::new(config.user("bob", Secret::new("secret"))).unwrap();
    let mut digest = both.begin();
    digest.step(b"", now_ms, [7; 32]);
    assert!(matches!(digest.step(JDK, now_ms, [7; 32]), Step::Done { .. }));
    // Without proof of the server the offer comes at once, and must be answered with what only the client can make.
    let token = include_bytes!("../../tests/recorded/jdk-ap-req");
    let mut kerberos = both.begin();
    let Step::Challenge(offer) = kerberos.step(token, now_ms, [7; 32]) else { panic!("no offer") };
    assert_eq!(offer[16..20], NO_LAYER);
    assert!(failure(kerberos.step(&offer, now_ms, [7; 32])).contains("says that it is the server's"));
    // Another connection has seen the token.
    assert!(failure(both.begin().step(token, now_ms, [7; 32])).contains("used before"));
    let mutual = include_bytes!("../../tests/recorded/jdk-ap-req-mutual");
    let mut kerberos = both.begin();
    assert!(matches!(kerberos.step(mutual, now_ms, [7; 32]), Step::Challenge(_)));
    assert!(failure(kerberos.step(b"x", now_ms, [7; 32])).contains("nothing to say"));
}
