//! The suite of the C client: as Debian packages it, and once more with TLS, which that package does not
//! have. The library for the second run is built from Debian's source, whose signatures apt checks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::against::Against;
use crate::peer::{read, write};
use crate::suites::{SERVER_COMMAND, install, install_missing};
use crate::tally::{self, Tally};
use crate::{peer, run, workspace};

/// The same as [`SERVER_COMMAND`] for a server that demands certificates.
const DEMANDING_SERVER_COMMAND: &str = "DEMANDING_SERVER_COMMAND";

const TESTS_LIMIT: Duration = Duration::from_secs(120);
const BUILD_LIMIT: Duration = Duration::from_secs(120);
const APT_LIMIT: Duration = Duration::from_secs(300);

/// Where Debian and those who follow it keep the archives that a machine's packages come from.
const ARCHIVES: [&str; 3] = [
    "/etc/apt/sources.list.d/debian.sources",
    "/etc/apt/sources.list.d/ubuntu.sources",
    "/etc/apt/sources.list",
];

const CLIENT: &str = "zookeeper-client/zookeeper-client-c";
const RECORDS: &str = "zookeeper-jute/src/main/resources/zookeeper.jute";

/// The library with threads, below `src` of the client. The records come besides.
const SOURCES: [&str; 8] = [
    "mt_adaptor.c",
    "zookeeper.c",
    "zk_log.c",
    "zk_hashtable.c",
    "recordio.c",
    "addrvec.c",
    "hashtable/hashtable.c",
    "hashtable/hashtable_itr.c",
];

const WITH_TLS: [&str; 2] = ["-DTHREADED", "-DHAVE_OPENSSL_H"];

pub(crate) fn run(against: Against) -> Result<Tally, String> {
    against.prepare()?;
    make(&target())?;
    let mut sum = in_the_clear(against)?;
    sum += with_tls(against)?;
    Ok(sum)
}

fn in_the_clear(against: Against) -> Result<Tally, String> {
    if !Path::new("/usr/include/zookeeper/zookeeper.h").exists() {
        install("the C client", "libzookeeper-mt-dev")?;
    }
    let program = target().join("client");
    compile(&program, &["-DTHREADED".to_owned()], &["-lzookeeper_mt", "-lpthread"].map(str::to_owned))?;
    let mut tests = Command::new(&program);
    tests
        .current_dir(target())
        .env(SERVER_COMMAND, against.command(&peer::config())?)
        .env("SERVER_NAME", against.name());
    judge(&mut tests)
}

fn with_tls(against: Against) -> Result<Tally, String> {
    let library = library()?;
    let program = target().join("client-tls");
    let headers = format!("-I{}", library.join(CLIENT).join("include").display());
    let records = format!("-I{}", library.display());
    let object = library.join("zookeeper.o").display().to_string();
    let options = WITH_TLS.map(str::to_owned).into_iter().chain([headers, records]).collect::<Vec<_>>();
    let libraries = [object, "-lssl".into(), "-lcrypto".into(), "-lpthread".into()];
    compile(&program, &options, &libraries)?;
    let certificates = certificates()?;
    let command = |whether| against.command(&settings(&certificates, whether)?);
    let mut tests = Command::new(&program);
    tests
        .current_dir(&certificates)
        .env(SERVER_COMMAND, command("none")?)
        .env(DEMANDING_SERVER_COMMAND, command("need")?)
        .env("SERVER_NAME", against.name());
    judge(&mut tests)
}

fn judge(tests: &mut Command) -> Result<Tally, String> {
    let outcome = run::run(tests, TESTS_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// The program of tests/c.
fn compile(program: &Path, options: &[String], libraries: &[String]) -> Result<(), String> {
    let mut sources: Vec<_> = std::fs::read_dir(workspace::suite("c"))
        .map_err(|error| format!("tests/c: {error}"))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg("-o")
        .arg(program)
        .args(sources)
        .args(libraries);
    run::must(&mut compiler, BUILD_LIMIT).map(|_| ())
}

/// The folder with the C client that has TLS: `zookeeper.o`, its headers and those of the records. It is
/// built anew when how to build it changes.
fn library() -> Result<PathBuf, String> {
    if !Path::new("/usr/include/openssl/ssl.h").exists() {
        install("OpenSSL's development files", "libssl-dev")?;
    }
    let archive = archive()?;
    let config = read(&workspace::suite("c").join("config.h"))?;
    let wanted = format!("{}\n{SOURCES:?} {WITH_TLS:?}\n{config}", archive.display());
    let library = target().join("library");
    let stamp = library.join("built");
    if std::fs::read_to_string(&stamp).is_ok_and(|built| built == wanted) {
        return Ok(library);
    }
    install_missing(&[("cc", "build-essential"), ("java", "openjdk-17-jdk-headless")])?;
    remove(&library)?;
    make(&library)?;
    let mut unpack = Command::new("tar");
    unpack
        .arg("--extract")
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(&library)
        .args(["--strip-components=1", "--wildcards"])
        .args([CLIENT, RECORDS].map(|path| format!("*/{path}")));
    run::must(&mut unpack, BUILD_LIMIT)
        .map_err(|error| format!("{error}; remove {} to have it brought again", target().display()))?;
    // The compiler of records comes with the server's own jars.
    let mut records = Command::new("java");
    records
        .arg("-cp")
        .arg(peer::fetch()?.join("*"))
        .args(["org.apache.jute.compiler.generated.Rcc", "-l", "c", RECORDS])
        .current_dir(&library);
    run::must(&mut records, BUILD_LIMIT)?;
    let client = library.join(CLIENT);
    let mut compiler = Command::new("cc");
    compiler
        // It is somebody else's code: no warnings.
        .args(["-O1", "-g", "-w"])
        .args(WITH_TLS)
        .arg(format!("-I{}", workspace::suite("c").display()))
        .arg(format!("-I{}", client.join("include").display()))
        .args(["-I.", "-r", "-o", "zookeeper.o", "zookeeper.jute.c"])
        .args(SOURCES.map(|source| client.join("src").join(source)))
        .current_dir(&library);
    run::must(&mut compiler, BUILD_LIMIT)?;
    write(&stamp, &wanted)?;
    Ok(library)
}

/// ZooKeeper's source as Debian has it, brought once.
fn archive() -> Result<PathBuf, String> {
    let folder = target().join("source");
    if let Some(archive) = archive_in(&folder) {
        return Ok(archive);
    }
    // What is broken off is not taken for an archive.
    let coming = target().join("source-coming");
    remove(&coming)?;
    make(&coming)?;
    download(&coming).map_err(|error| {
        let folder = folder.display();
        format!(
            "cannot bring ZooKeeper's source, which the C client with TLS is built from: {error}. See that \
             apt reaches Debian's archive, or put zookeeper_VERSION.orig.tar.gz of Debian's source package \
             `zookeeper` into {folder}"
        )
    })?;
    remove(&folder)?;
    std::fs::rename(&coming, &folder)
        .map_err(|error| format!("cannot rename {} to {}: {error}", coming.display(), folder.display()))?;
    archive_in(&folder).ok_or_else(|| format!("apt left no zookeeper_*.orig.tar.* in {}", folder.display()))
}

fn archive_in(folder: &Path) -> Option<PathBuf> {
    std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("zookeeper_") && name.contains(".orig.tar.") && !name.ends_with(".asc")
    })
}

/// Has apt download the source package, from the archives of the machine, with lists of its own: those of
/// the machine are seldom about sources.
fn download(to: &Path) -> Result<(), String> {
    let archives = ARCHIVES.into_iter().map(Path::new).find(|path| path.exists());
    let archives = archives.ok_or_else(|| format!("there is none of {}", ARCHIVES.join(", ")))?;
    // apt tells the two forms apart by the name.
    let sources = to.join(archives.file_name().unwrap_or_default());
    write(&sources, &of_sources(&read(archives)?))?;
    let state = to.join("apt");
    // apt makes folders only where its own are.
    for folder in ["lists/partial", "cache/archives/partial"].map(|folder| state.join(folder)) {
        make(&folder)?;
    }
    for words in [&["update"][..], &["source", "--download-only", "zookeeper"]] {
        let mut apt = Command::new("apt-get");
        apt.args(["--quiet", "-o", "Dir::Etc::sourceparts=/dev/null"])
            .args(["-o", &format!("Dir::Etc::sourcelist={}", sources.display())])
            .args(["-o", &format!("Dir::State::lists={}", state.join("lists").display())])
            .args(["-o", &format!("Dir::Cache={}", state.join("cache").display())])
            .args(words)
            .current_dir(to);
        run::must(&mut apt, APT_LIMIT)?;
    }
    remove(&state)
}

/// A list of archives with the sources in place of the packages, in either form that apt reads.
fn of_sources(list: &str) -> String {
    let line = |line: &str| match line.split_once([':', ' ', '\t']) {
        Some(("Types", _)) => "Types: deb-src\n".to_owned(),
        Some(("deb", rest)) => format!("deb-src {rest}\n"),
        Some(("deb-src", _)) => String::new(),
        _ => format!("{line}\n"),
    };
    list.lines().map(line).collect()
}

/// A folder with new certificates: those that belong together, and in `other` those of another authority.
fn certificates() -> Result<PathBuf, String> {
    // They are Stoa's own for Apache ZooKeeper, too.
    Against::Stoa.prepare()?;
    let folder = target().join("certificates");
    remove(&folder)?;
    make(&folder)?;
    for to in [folder.clone(), folder.join("other")] {
        let mut stoa = Command::new(workspace::target().join("release").join("stoa"));
        stoa.args(["certificate", "--name", "localhost", "--client", "client", "--to"]).arg(&to);
        let made = run::quietly(&mut stoa, BUILD_LIMIT)?;
        if !made.succeeded() {
            return Err(format!("cannot make certificates: {}", made.output));
        }
    }
    // ZooKeeper wants both in one file.
    let store = read(&folder.join("server-key.pem"))? + &read(&folder.join("server.pem"))?;
    write(&folder.join("store.pem"), &store)?;
    Ok(folder)
}

/// The configuration of a server with TLS on its port, beside the four-letter words in the clear.
fn settings(certificates: &Path, client_auth: &str) -> Result<PathBuf, String> {
    let file = certificates.join(format!("{client_auth}.cfg"));
    let files = certificates.display();
    let tls = format!(
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n\
         client.portUnification=true\n\
         ssl.clientAuth={client_auth}\n\
         ssl.keyStore.type=PEM\n\
         ssl.keyStore.location={files}/store.pem\n\
         ssl.trustStore.type=PEM\n\
         ssl.trustStore.location={files}/authority.pem\n"
    );
    write(&file, &(read(&peer::config())? + &tls))?;
    Ok(file)
}

fn target() -> PathBuf {
    workspace::target().join("c")
}

fn make(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))
}

fn remove(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_packages_become_lists_of_sources() {
        let stanza = "Types: deb\nURIs: http://archive/debian\nSuites: a b\nSigned-By: /key\n";
        assert_eq!(of_sources(stanza), stanza.replace("deb\nURIs", "deb-src\nURIs"));
        assert_eq!(of_sources("Types: deb deb-src\n"), "Types: deb-src\n");
        let lines =
            "# deb of mine\ndeb [signed-by=/key] http://archive a main\ndeb-src http://archive a main\n";
        assert_eq!(of_sources(lines), "# deb of mine\ndeb-src [signed-by=/key] http://archive a main\n");
    }
}
