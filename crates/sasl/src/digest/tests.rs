use super::*;

const RANDOM: [u8; 32] = [7; 32];

fn users() -> Users {
    [("bob", "secret"), ("Ann \"B\"", "pä§"), ("Ђ", "€")]
        .map(|(name, password)| (name.to_owned(), Secret::new(password)))
        .into()
}

/// A response as a client makes it, with the value that is right for it.
fn response(nonce: &str, name: &str, password: &str, more: &str) -> String {
    let proof = Proof {
        start: start(name, password),
        nonce,
        cnonce: b"c",
        authzid: more.contains("authzid").then_some(b"z"),
        digest_uri: DIGEST_URI.as_bytes(),
    };
    let value = proof.value("AUTHENTICATE");
    let quoted = name.replace('"', "\\\"");
    format!(
        "username=\"{quoted}\",realm=\"zk-sasl-md5\",nonce=\"{nonce}\",cnonce=\"c\",nc=00000001,qop=auth,\
         digest-uri=\"zookeeper/zk-sasl-md5\",response={value}{more}"
    )
}

fn nonce() -> String {
    Challenged::begin(RANDOM).0.nonce
}

fn finish(response: &str) -> Result<Proved, String> {
    Challenged::begin(RANDOM).0.finish(response.as_bytes(), &users())
}

/// The exchange of RFC 2831 section 4, whose realm and digest-uri are other ones.
#[test]
fn values_are_those_of_the_rfc() {
    let mut hash = Md5::new();
    hash.update("chris:elwood.innosoft.com:secret");
    let proof = Proof {
        start: hash.finalize().into(),
        nonce: "OA6MG9tEQGm2hh",
        cnonce: b"OA6MHXh6VqTrRk",
        authzid: None,
        digest_uri: b"imap/elwood.innosoft.com",
    };
    assert_eq!(proof.value("AUTHENTICATE"), "d388dad90d4bbd760a152321f2143af7");
    assert_eq!(proof.value(""), "ea40f60335c427b5527b84dbabcdfffd");
}

/// The other example there, for ACAP.
#[test]
fn values_are_those_of_the_second_example() {
    let mut hash = Md5::new();
    hash.update("chris:elwood.innosoft.com:secret");
    let proof = Proof {
        start: hash.finalize().into(),
        nonce: "OA9BSXrbuRhWay",
        cnonce: b"OA9BSuZWMSpW8m",
        authzid: None,
        digest_uri: b"acap/elwood.innosoft.com",
    };
    assert_eq!(proof.value("AUTHENTICATE"), "6084c6db3fede7352c551284490fd0fc");
    assert_eq!(proof.value(""), "2f0b3d7c3c2e486600ef710726aa2eae");
}

#[test]
fn a_challenge_is_the_jdks() {
    let (_, challenge) = Challenged::begin(RANDOM);
    let expected = "realm=\"zk-sasl-md5\",nonce=\"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\",\
                    charset=utf-8,algorithm=md5-sess";
    assert_eq!(String::from_utf8(challenge).unwrap(), expected);
}

#[test]
fn whoever_has_the_password_is_let_in() {
    for (name, password) in [("bob", "secret"), ("Ann \"B\"", "pä§"), ("Ђ", "€")] {
        let proved =
            finish(&response(&nonce(), name, password, "")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(proved.name, name);
        assert!(proved.token.starts_with(b"rspauth="));
        assert_eq!(proved.token.len(), 8 + 32);
    }
    for (name, password) in [("bob", "Secret"), ("bob", ""), ("alice", "secret"), ("alice", ""), ("", "")] {
        assert!(finish(&response(&nonce(), name, password, "")).is_err(), "{name} {password}");
    }
}

#[test]
fn letters_of_latin_1_are_hashed_as_such() {
    assert_eq!(narrow("pä§"), [b'p', 0xe4, 0xa7]);
    assert_eq!(narrow("€ä"), "€ä".as_bytes());
}

#[test]
fn an_asked_for_identity_is_part_of_the_proof_and_no_more() {
    assert_eq!(finish(&response(&nonce(), "bob", "secret", ",authzid=\"z\"")).ok().unwrap().name, "bob");
    let without = response(&nonce(), "bob", "secret", "");
    assert!(finish(&format!("{without},authzid=\"z\"")).is_err());
}

#[test]
fn each_directive_is_looked_at() {
    let good = response(&nonce(), "bob", "secret", "");
    for (from, to, expected) in [
        ("realm=\"zk-sasl-md5\"", "realm=\"other\"", "realm"),
        ("realm=\"zk-sasl-md5\",", "", "realm"),
        ("nonce=\"B", "nonce=\"C", "nonce"),
        ("nc=00000001", "nc=00000002", "nonce count"),
        ("nc=00000001", "nc=1,nc=1", "twice"),
        ("qop=auth", "qop=auth-int", "quality"),
        ("zookeeper/zk-sasl-md5", "zookeeper/localhost", "digest-uri"),
        ("digest-uri=\"zookeeper/zk-sasl-md5\",", "", "has no digest-uri"),
        ("cnonce=\"c\",", "", "has no cnonce"),
        ("cnonce=\"c\"", "cnonce=\"d\"", "another one"),
        ("username=\"bob\",", "", "has no username"),
        ("username=\"bob\"", "username=\"bob\"x", "behind its second quote"),
        ("username=\"bob\"", "username=\"bob", "second quote"),
        ("username=\"bob\"", "=\"bob\"", "no key"),
        ("username=\"bob\"", "username", "no = behind it"),
        ("response=", "charset=latin1,response=", "charset"),
        ("response=", "Realm=x,response=", "twice"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = finish(&good.replacen(from, to, 1)).err().unwrap_or_else(|| panic!("{to} is taken"));
        assert!(error.contains(expected), "{to}: {error}");
    }
    let long = format!("{good},x=\"{}\"", "y".repeat(4096));
    assert!(finish(&long).err().unwrap().contains("more than 4096"));
}

#[test]
fn what_the_jdk_lets_pass_is_let_pass() {
    let good = response(&nonce(), "bob", "secret", "");
    for (from, to) in [
        ("nc=00000001,", ""),
        ("qop=auth,", ""),
        ("qop=auth,", "QOP = \"auth\" ,, "),
        ("response=", "charset=utf-8,maxbuf=65536,response="),
        ("response=", "unknown=1,unknown=2,response="),
    ] {
        let changed = good.replacen(from, to, 1);
        finish(&changed).unwrap_or_else(|error| panic!("{changed}: {error}"));
    }
    // In letters of another case, and then hashed so.
    assert!(finish(&good.replacen("zookeeper/zk", "ZooKeeper/ZK", 1)).err().unwrap().contains("password"));
}
