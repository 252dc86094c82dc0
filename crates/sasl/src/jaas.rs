//! Login configuration files of JAAS, as ZooKeeper has its users and its keytab in them.
//!
//! The grammar is the one of the JDK's `ConfigFile`, which reads words with its `StreamTokenizer`: a word is made of
//! letters, digits, `.`, `_`, `-`, `$` and `*` and begins with none of the digits; whatever has other characters in it
//! is in double quotes, with Java's escapes. `//`, `/* */` and a single `/` begin comments, `#` does not.
//!
//! Less is taken than there: a quoted text that does not end on its line is an error, and so is a value with a
//! `${property}` in it, as there are no properties here.

mod scan;

use core::fmt;

use crate::Secret;
use scan::{Scanner, Token};

/// The module with ZooKeeper's users.
const DIGEST_MODULE: &str = "org.apache.zookeeper.server.auth.DigestLoginModule";

/// The module with a keytab.
const KERBEROS_MODULE: &str = "com.sun.security.auth.module.Krb5LoginModule";

/// What an option begins with that is a user.
const USER_PREFIX: &str = "user_";

/// What a section of a login configuration says about the server's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    users: Vec<(String, Secret)>,
    kerberos: Option<ServiceLogin>,
}

/// What a `Krb5LoginModule` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceLogin {
    keytab_path: String,
    principal: String,
}

impl Login {
    /// Names and passwords of the users, in the order of the file; of a name that comes again the last password.
    #[must_use]
    pub fn users(&self) -> &[(String, Secret)] {
        &self.users
    }

    /// The keytab and the principal of the server, when Kerberos is configured.
    #[must_use]
    pub fn kerberos(&self) -> Option<&ServiceLogin> {
        self.kerberos.as_ref()
    }
}

impl ServiceLogin {
    /// The path of the keytab, as the file has it.
    #[must_use]
    pub fn keytab_path(&self) -> &str {
        &self.keytab_path
    }

    /// The name of the server, `zookeeper/HOST@REALM` or without the realm.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }
}

/// Why a login configuration is not taken. It has no option's value in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JaasError {
    line: u32,
    message: String,
}

impl JaasError {
    fn new(line: u32, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }

    /// The line that it is about, from 1 on; 0 when it is about the whole file.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.line
    }
}

impl fmt::Display for JaasError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => formatter.write_str(&self.message),
            line => write!(formatter, "line {line}: {}", self.message),
        }
    }
}

impl core::error::Error for JaasError {}

/// Reads the section of this name; ZooKeeper's is `Server`.
///
/// # Errors
/// When the file is not of the grammar, has no such section or it twice, or the section names a module that is not
/// known here or lacks what a module needs.
pub fn read(text: &str, section: &str) -> Result<Login, JaasError> {
    let mut scanner = Scanner::new(text);
    let mut names = Vec::new();
    let mut found = None;
    loop {
        let (line, name) = match scanner.next()? {
            (_, Token::End) => break,
            (line, Token::Word(name) | Token::Quoted(name)) => (line, name),
            (line, other) => return Err(other.unexpected(line, "the name of a section")),
        };
        let modules = modules(&mut scanner)?;
        if names.contains(&name) {
            return Err(JaasError::new(line, format!("the section {name} is there twice")));
        }
        if name == section {
            found = Some(login(line, section, modules)?);
        }
        names.push(name);
    }
    found.ok_or_else(|| JaasError::new(0, format!("there is no section {section}, only {names:?}")))
}

/// A login module with its options.
struct Module {
    line: u32,
    class: String,
    options: Vec<Entry>,
}

struct Entry {
    line: u32,
    key: String,
    value: String,
}

impl Module {
    /// The last value of an option, as Java's map has it.
    fn option(&self, key: &str) -> Option<&Entry> {
        self.options.iter().rev().find(|option| option.key == key)
    }

    fn is_true(&self, key: &str) -> bool {
        self.option(key).is_some_and(|option| option.value.eq_ignore_ascii_case("true"))
    }
}

/// `{ module ... };`
fn modules(scanner: &mut Scanner<'_>) -> Result<Vec<Module>, JaasError> {
    scanner.expect('{')?;
    let mut modules = Vec::new();
    loop {
        match scanner.next()? {
            (_, Token::Sign('}')) => break,
            (line, Token::Word(class) | Token::Quoted(class)) => modules.push(module(scanner, line, class)?),
            (line, other) => return Err(other.unexpected(line, "the class of a login module or `}`")),
        }
    }
    scanner.expect(';')?;
    Ok(modules)
}

/// `class flag key=value ...;`, behind the class.
fn module(scanner: &mut Scanner<'_>, line: u32, class: String) -> Result<Module, JaasError> {
    const FLAGS: &str = "required, requisite, sufficient or optional";
    let (flag_line, flag) = scanner.text(FLAGS)?;
    if !["required", "requisite", "sufficient", "optional"].iter().any(|it| flag.eq_ignore_ascii_case(it)) {
        return Err(JaasError::new(flag_line, format!("expected {FLAGS} behind the class {class}")));
    }
    let mut options = Vec::new();
    loop {
        match scanner.next()? {
            (_, Token::Sign(';')) => return Ok(Module { line, class, options }),
            (_, Token::Word(key) | Token::Quoted(key)) => {
                scanner.expect('=')?;
                let (line, value) = scanner.text(&format!("the value of {key:?}"))?;
                options.push(Entry { line, key, value });
            }
            (line, other) => return Err(other.unexpected(line, "an option, or `;` behind the last one")),
        }
    }
}

/// What a section means.
fn login(line: u32, section: &str, modules: Vec<Module>) -> Result<Login, JaasError> {
    let mut login = Login { users: Vec::new(), kerberos: None };
    for module in &modules {
        match module.class.as_str() {
            DIGEST_MODULE => {}
            KERBEROS_MODULE if login.kerberos.is_none() => login.kerberos = Some(service(module)?),
            KERBEROS_MODULE => {
                return Err(JaasError::new(module.line, format!("{KERBEROS_MODULE} is there twice")));
            }
            other => {
                let message = format!(
                    "the login module {other} is not known; there are {DIGEST_MODULE} and {KERBEROS_MODULE}"
                );
                return Err(JaasError::new(module.line, message));
            }
        }
        // Whichever module has them, as ZooKeeper takes them.
        for option in &module.options {
            let Some(name) = option.key.strip_prefix(USER_PREFIX) else { continue };
            let secret = Secret::new(plain(option)?);
            match login.users.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = secret,
                None => login.users.push((name.to_owned(), secret)),
            }
        }
    }
    if modules.is_empty() {
        return Err(JaasError::new(line, format!("the section {section} has no login module")));
    }
    Ok(login)
}

fn service(module: &Module) -> Result<ServiceLogin, JaasError> {
    let needed = |key: &str| {
        let option = module.option(key).filter(|option| !option.value.is_empty());
        option.ok_or_else(|| JaasError::new(module.line, format!("{KERBEROS_MODULE} needs {key}=\"...\"")))
    };
    if !module.is_true("useKeyTab") {
        let message = format!("{KERBEROS_MODULE} needs useKeyTab=true: a server has its keys from a keytab");
        return Err(JaasError::new(module.line, message));
    }
    let path = plain(needed("keyTab")?)?;
    // The JDK takes a URL of a file as well.
    let keytab_path = path.strip_prefix("file:").unwrap_or(&path).to_owned();
    let principal = needed("principal")?;
    let name = plain(principal)?;
    if name == "*" {
        let message = "principal=\"*\" names no server; write zookeeper/HOST@REALM";
        return Err(JaasError::new(principal.line, message));
    }
    Ok(ServiceLogin { keytab_path, principal: name })
}

/// A value in which nothing would have to be expanded; `${/}` is what stands between folders.
fn plain(option: &Entry) -> Result<String, JaasError> {
    let value = option.value.replace("${/}", "/");
    if value.contains("${") {
        let message =
            format!("the value of {:?} has a ${{property}} in it; write what that stands for", option.key);
        return Err(JaasError::new(option.line, message));
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
