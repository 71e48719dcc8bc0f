//! The commands of the quick starts work, in their order, on other ports and in other folders.
//!
//! Blocks `sh` contain commands, one on each line. Those that build, or that need a container, are left out. Programs of
//! Varnish run where they are installed.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{signal, until};
use lacquer_testing::{Folder, Ran, free_address};

use crate::{App, turn};

const DEFAULT_VCL: &str = "vcl 4.0;\nbackend default { .host = \"127.0.0.1\"; .port = \"8080\"; }\n";
/// Commands that other tests cover, or that need more than this machine has.
const ELSEWHERE: [&str; 2] = ["make ", "podman "];

/// A reader who types the commands of a page.
struct Reader {
    app: App,
    folder: Folder,
    /// The words of the page, and those that take their place.
    places: Vec<(&'static str, String)>,
    daemon: Option<Child>,
    address: SocketAddr,
}

impl Reader {
    fn new(page: &str) -> Reader {
        let app = App::start("Content-Type: text/html\r\nCache-Control: max-age=60\r\n");
        let folder = Folder::new("quick-start");
        let address = free_address();
        let vcl = folder.file("default.vcl", DEFAULT_VCL).display().to_string();
        let trial = folder.join("trial").display().to_string();
        let places = vec![
            ("localhost:3000", app.origin.address.to_string()),
            ("localhost:6081", address.to_string()),
            ("localhost:6091", address.to_string()),
            ("localhost:6092", free_address().to_string()),
            ("LACQUER_LISTEN=:6081", format!("LACQUER_LISTEN={address}")),
            ("-a :6091", format!("-a {address}")),
            ("/etc/varnish/default.vcl", vcl),
            ("/run/lacquer-trial", trial),
        ];
        let reader = Reader { app, folder, places, daemon: None, address };
        if let Some((_, rest)) = page.split_once("```toml\n") {
            let (file, _) = rest.split_once("```").expect("the block ends");
            let file = format!("{}listen = \"{address}\"\n", reader.placed(file));
            reader.folder.file("lacquer.toml.later", file);
        }
        reader
    }

    fn placed(&self, text: &str) -> String {
        self.places.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Types a command.
    fn type_in(&mut self, line: &str) {
        let mut line = self.placed(line);
        if line == "lacquer check lacquer.toml" {
            // From here on, the reader has the file.
            fs::rename(self.folder.join("lacquer.toml.later"), self.folder.join("lacquer.toml"))
                .expect("it exists");
        }
        let is_daemon = line.starts_with("lacquerd -F") || line.contains("lacquer run");
        if is_daemon && !line.contains("--print-vcl") {
            if line.contains("--https") {
                line = format!("{line} --https-listen {} --listen {}", free_address(), self.address);
            } else if line.contains("lacquer run --") {
                line = format!("{line} --listen {}", self.address);
            }
            return self.start(&line);
        }
        if let Some(words) = line.strip_prefix("curl ") {
            return self.fetch(words);
        }
        let program = line.split(' ').next().unwrap_or_default();
        let is_missing =
            program.starts_with("varnish") && Ran::of(&mut self.shell("varnishadm -V")).code != Some(0);
        if !is_missing {
            let ran = Ran::of(&mut self.shell(&line));
            assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        }
    }

    fn shell(&self, line: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_lacquer")).parent().expect("it is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&*self.folder).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", programs.display()));
        command
            .env("HOME", &*self.folder)
            .env("XDG_RUNTIME_DIR", &*self.folder)
            .env_remove("XDG_CONFIG_HOME");
        command
    }

    /// Starts a daemon, after the end of the one before.
    fn start(&mut self, line: &str) {
        self.end();
        let file = |name| fs::File::create(self.folder.join(name)).expect("it can be created");
        let (assignments, line) = match line.split_once("lacquer run") {
            Some((assignments, rest)) => (assignments, format!("lacquer run{rest}")),
            None => ("", line.to_owned()),
        };
        let mut command = self.shell(&format!("{assignments}exec {line}"));
        let child = command.stdout(file("out")).stderr(file("err")).spawn().expect("the shell runs");
        let daemon = self.daemon.insert(child);
        let (folder, address) = (&self.folder, self.address);
        let is_up = (0..4).any(|_| {
            until(|| {
                let has_ended = daemon.try_wait().is_ok_and(|end| end.is_some());
                assert!(!has_ended, "{line}: {}{}", folder.read("out"), folder.read("err"));
                TcpStream::connect(address).is_ok()
            })
        });
        assert!(is_up, "{line}: {}", self.folder.read("err"));
    }

    /// Sends the request that curl would send.
    fn fetch(&self, words: &str) {
        let method = if words.contains("-X PURGE") { "PURGE" } else { "GET" };
        let url = words.split(' ').next_back().unwrap_or_default();
        let path = url.strip_prefix("http://").and_then(|rest| rest.find('/').map(|at| &rest[at..]));
        let path = path.unwrap_or_else(|| panic!("{words}"));
        let mut client = Client::connect(self.address).expect("it listens");
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        client.send(&request).expect("it reads");
        let response = client.response_to(method).expect("it responds");
        assert!(response.status < 600, "{words}: {response:?}");
    }

    fn end(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            signal(daemon.id(), "-INT");
            if !until(|| daemon.try_wait().is_ok_and(|end| end.is_some())) {
                let _ = daemon.kill();
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the commands of a page.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    blocks.flat_map(str::lines).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_commands_of_the_quick_starts_work() {
    let _turn = turn();
    let mut count = 0;
    for name in ["developer", "varnish", "container"] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/start").join(name).with_extension("md");
        let page = fs::read_to_string(path).expect("readable");
        let mut reader = Reader::new(&page);
        let typed =
            commands(&page).into_iter().filter(|line| !ELSEWHERE.iter().any(|words| line.starts_with(words)));
        for line in typed {
            reader.type_in(line);
            count += 1;
        }
        assert!(
            reader.app.origin.requests() > 0 || name == "varnish",
            "{name}: no request has reached the application"
        );
    }
    assert!(count >= 20, "{count} commands");
}

#[test]
fn examples_of_settings_are_correct() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folder = Folder::new("documents");
    let mut count = 0;
    for name in ["run.md", "start/developer.md", "migrate/nginx.md", "migrate/squid.md"] {
        let page = fs::read_to_string(docs.join(name)).expect("readable");
        for block in page.split("```toml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)) {
            folder.file("lacquer.toml", block);
            let (code, out, err) = crate::lacquer(&folder, &["check", "lacquer.toml"]);
            assert_eq!((code, out.as_str()), (Some(0), "lacquer.toml: correct\n"), "{name}: {err}");
            count += 1;
        }
    }
    assert_eq!(count, 4);
}

/// Their VCL is printed, so that nothing starts.
#[test]
fn commands_without_vcl_are_correct() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = Folder::new("documents-run");
    let mut count = 0;
    for name in ["README.md", "docs/run.md"] {
        let page = fs::read_to_string(root.join(name)).expect("readable").replace("\\\n", " ");
        let typed = page.lines().filter_map(|line| line.strip_prefix("    ")).filter_map(|line| {
            let line = line.strip_prefix("target/release/").unwrap_or(line);
            line.strip_prefix("lacquer run ").filter(|line| line.contains("--backend"))
        });
        for words in typed {
            let words = words.split(" > ").next().unwrap_or_default();
            let program = env!("CARGO_BIN_EXE_lacquer");
            let line = format!("{program} run {words} --print-vcl");
            let ran = Ran::of(Command::new("sh").args(["-c", &line]).current_dir(&*folder));
            assert!(ran.code == Some(0) && ran.out.starts_with("vcl 4.1;"), "{name}: {words}: {ran:?}");
            count += 1;
        }
    }
    assert!(count >= 6, "{count} commands");
}
