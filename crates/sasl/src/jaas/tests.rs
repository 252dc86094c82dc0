use super::*;

const FULL: &str = r#"
// Who may come.
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_super="adm\"in" /* the
        operator */
    user_bob=bobsecret
    user_Ann.B="x y" / the rest is a comment ;
    debug=true;
    com.sun.security.auth.module.Krb5LoginModule REQUIRED
    useKeyTab=true keyTab="/etc/zk.keytab" storeKey=true useTicketCache=false
    principal="zookeeper/zk1.example.com@EXAMPLE.COM";
};
"Client" { some.other.Module optional a="1"; };
"#;

fn error(text: &str) -> String {
    read(text, "Server").unwrap_err().to_string()
}

/// A section with this behind the class of the digest module.
fn digest(rest: &str) -> String {
    format!("Server {{ {DIGEST_MODULE} {rest} }};")
}

#[test]
fn both_modules_are_read() {
    let login = read(FULL, "Server").unwrap();
    let users: Vec<_> = login.users().iter().map(|(name, secret)| (name.as_str(), secret.reveal())).collect();
    assert_eq!(users, [("super", "adm\"in"), ("bob", "bobsecret"), ("Ann.B", "x y")]);
    let kerberos = login.kerberos().unwrap();
    assert_eq!(kerberos.keytab_path(), "/etc/zk.keytab");
    assert_eq!(kerberos.principal(), "zookeeper/zk1.example.com@EXAMPLE.COM");
}

#[test]
fn the_section_is_the_one_that_is_asked_for() {
    let text = format!("A {{ other.Module required; }}; B {{ {DIGEST_MODULE} required user_x=y; }};");
    assert_eq!(read(&text, "B").unwrap().users().len(), 1);
    assert_eq!(
        read(&text, "A").unwrap_err().to_string(),
        format!(
            "line 1: the login module other.Module is not known; there are {DIGEST_MODULE} and {KERBEROS_MODULE}"
        )
    );
    assert_eq!(
        read(&text, "Server").unwrap_err().to_string(),
        "there is no section Server, only [\"A\", \"B\"]"
    );
}

#[test]
fn passwords_are_not_printed() {
    let login = read(FULL, "Server").unwrap();
    let printed = format!("{login:?}");
    assert!(!printed.contains("secret\"") && !printed.contains("bobsecret") && !printed.contains("x y"));
    assert!(printed.contains("bob") && printed.contains("(secret)"), "{printed}");
    for broken in ["required user_bob hunter2;", "required user_bob=\"hunter2", "required user_bob=hunter2"] {
        assert!(!error(&digest(broken)).contains("hunter2"));
    }
}

#[test]
fn escapes_are_javas() {
    let login = read(&digest(r#"required user_a="\t\101\3778\48\\\q";"#), "Server").unwrap();
    assert_eq!(login.users()[0].1.reveal(), "\tA\u{ff}8\u{4}8\\q");
}

#[test]
fn the_last_of_a_user_counts() {
    let login = read(&digest("required user_a=1x user_b=z user_a=2x;"), "Server");
    assert_eq!(login.unwrap_err().line(), 1, "a number is no word");
    let login = read(&digest("required user_a=x1 user_b=z user_a=x2;"), "Server").unwrap();
    assert_eq!(login.users().len(), 2);
    assert_eq!(login.users()[0].1.reveal(), "x2");
}

#[test]
fn errors_say_the_line_and_what_was_expected() {
    for (text, expected) in [
        ("\n\nServer org", "line 3: expected `{`, found a word"),
        (
            "Server {\n a.B\n maybe;};",
            "line 3: expected required, requisite, sufficient or optional behind the class a.B",
        ),
        ("Server { a.B required x };", "line 1: expected `=`, found '}'"),
        (
            "Server { a.B required x=\n1;};",
            "line 2: expected the value of \"x\", found a number, which has to be in double quotes",
        ),
        (
            "Server { a.B required x='1';};",
            "line 1: expected the value of \"x\", found a single quote; only double quotes are quotes here",
        ),
        ("Server { a.B required }", "line 1: expected an option, or `;` behind the last one, found '}'"),
        (
            "Server { a.B required;",
            "line 1: expected the class of a login module or `}`, found the end of the file",
        ),
        ("Server { a.B required; }", "line 1: expected `;`, found the end of the file"),
        ("# a comment elsewhere", "line 1: expected the name of a section, found '#'"),
        (
            "Server { a.B required x=\"1\n\"; };",
            "line 1: expected `\"` at the end of the text in quotes, on the same line",
        ),
        ("\r\n\r\r/* x\n", "line 4: expected `*/` at the end of the comment that begins here"),
        ("Server { };", "line 1: the section Server has no login module"),
        ("A { }; A { };", "line 1: the section A is there twice"),
    ] {
        assert_eq!(error(text), expected, "{text:?}");
    }
}

#[test]
fn a_keytab_and_a_name_are_needed() {
    let section = |options: &str| error(&format!("Server {{ {KERBEROS_MODULE} required {options}; }};"));
    assert!(section("principal=\"zookeeper/h\"").contains("needs useKeyTab=true"));
    assert!(section("useKeyTab=true principal=\"zookeeper/h\"").contains("needs keyTab=\"...\""));
    assert!(section("useKeyTab=true keyTab=\"k\"").contains("needs principal=\"...\""));
    assert!(section("useKeyTab=true keyTab=\"k\" principal=\"*\"").contains("names no server"));
    assert!(section("useKeyTab=true keyTab=\"${user.home}/k\" principal=\"z\"").contains("${property}"));
}
