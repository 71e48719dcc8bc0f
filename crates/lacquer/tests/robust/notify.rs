//! The service manager is told when the daemon serves, replaces its program and ends; a changed VCL is reloaded.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lacquer_testing::daemon::{program, signal};
use lacquer_testing::until;

/// A daemon in the foreground, as a service manager starts it, and the socket of that service manager.
struct Service {
    folder: PathBuf,
    socket: UnixDatagram,
    process: Child,
    address: SocketAddr,
}

impl Service {
    fn start(name: &str) -> Service {
        let folder = std::env::temp_dir().join(format!("lacquer-notify-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a temporary directory can be created");
        let socket = UnixDatagram::bind(folder.join("socket")).expect("the path is free");
        socket.set_read_timeout(Some(Duration::from_mins(1))).expect("it is a time");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("there is a port");
        fs::write(folder.join("site.vcl"), page("first")).expect("it can be written");
        let process = Command::new(program())
            .args(["-F", "-j", "none", "-s", "malloc,16M", "-l", "2m", "-a", &address.to_string(), "-f"])
            .arg(folder.join("site.vcl"))
            .arg("-n")
            .arg(folder.join("name"))
            .env("NOTIFY_SOCKET", folder.join("socket"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the daemon can be started");
        Service { folder, socket, process, address }
    }

    /// Returns the next message.
    fn message(&self) -> String {
        let mut buffer = [0; 1024];
        let length = self.socket.recv(&mut buffer).expect("a message arrives in time");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    fn body(&self) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it accepts");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it is open");
        let mut text = String::new();
        BufReader::new(stream).read_to_string(&mut text).expect("it is text");
        text.lines().last().unwrap_or_default().to_owned()
    }

    fn lacquer(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer"));
        command.args(words).arg("--name").arg(self.folder.join("name")).stdin(Stdio::null());
        let output = command.output().expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn page(body: &str) -> String {
    format!(
        "vcl 4.1;\nbackend none none;\nsub vcl_recv {{ return (synth(200)); }}\n\
         sub vcl_synth {{ set resp.body = \"{body}\"; return (deliver); }}\n"
    )
}

#[test]
fn a_service_manager_is_told_of_each_change() {
    let mut service = Service::start("changes");
    assert!(service.message().starts_with("READY=1\n"));
    assert_eq!(service.body(), "first");
    signal(service.process.id(), "-USR2");
    let reloading = service.message();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert!(service.message().starts_with("READY=1\n"));
    assert_eq!(service.body(), "first");
    signal(service.process.id(), "-TERM");
    let stopping = service.message();
    assert!(
        stopping.starts_with("STOPPING=1\nSTATUS=Draining: requests in progress have 20 s"),
        "{stopping}"
    );
    assert!(until(|| matches!(service.process.try_wait(), Ok(Some(_)))));
}

#[test]
fn a_changed_vcl_is_reloaded_and_a_broken_one_is_not() {
    let service = Service::start("reload");
    assert!(service.message().starts_with("READY=1\n"));
    let file = service.folder.join("site.vcl");
    let reload = || service.lacquer(&["reload", &file.to_string_lossy()]);
    for body in ["second", "third", "fourth"] {
        fs::write(&file, page(body)).expect("it can be written");
        let (code, text) = reload();
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(service.body(), body);
    }
    fs::write(&file, "vcl 4.1;\nnonsense").expect("it can be written");
    let (code, text) = reload();
    assert!(code == Some(2) && text.contains("nonsense"), "{text}");
    assert_eq!(service.body(), "fourth");
    let (code, text) = service.lacquer(&["reload", "/nonexistent.vcl"]);
    assert!(code == Some(2) && text.contains("/nonexistent.vcl"), "{text}");
    let output = Command::new(env!("CARGO_BIN_EXE_lacquer"))
        .args(["reload", "--name", "/nonexistent", &file.to_string_lossy()])
        .output()
        .expect("it runs");
    let line = output.stderr.lines().next().and_then(Result::ok).unwrap_or_default();
    assert_eq!(line, "lacquer: no daemon runs with the working directory /nonexistent");
}
