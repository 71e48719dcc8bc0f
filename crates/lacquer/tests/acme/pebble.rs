//! Pebble with its DNS server, in which every name is 127.0.0.1.

use std::collections::HashMap;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lacquer_testing::{free_address, write_program};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::site::Ports;

pub struct Pebble {
    folder: PathBuf,
    port: u16,
    dns_control: u16,
    processes: Vec<Child>,
}

/// Polls a condition for this time. Returns whether it held.
pub fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

impl Pebble {
    /// Starts both servers for the owners of external accounts, each an identifier and a key in base64url; for everybody
    /// if there is none. Certificates are valid for `validity` seconds.
    pub fn start(customers: &[(&str, &str)], ports: &Ports, validity: u64) -> Option<Pebble> {
        let programs = PathBuf::from(std::env::var_os("PEBBLE")?);
        let port = free_address().port();
        let folder = std::env::temp_dir().join(format!("lacquer-pebble-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let mut pebble = Pebble { folder, port, dns_control: free_address().port(), processes: Vec::new() };
        pebble.write_certificate();
        let path = |name: &str| pebble.folder.join(name).display().to_string();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": "",
            "certificate": path("server.pem"),
            "privateKey": path("server.key"),
            "httpPort": ports.http,
            "tlsPort": ports.tls,
            "externalAccountBindingRequired": !customers.is_empty(),
            "externalAccountMACKeys": customers.iter().copied().collect::<HashMap<_, _>>(),
            "profiles": { "default": { "description": "", "validityPeriod": validity } },
        }});
        fs::write(path("config.json"), config.to_string()).unwrap();
        let dns = free_address().port();
        let control = format!("127.0.0.1:{}", pebble.dns_control);
        let (dns, config) = (format!("127.0.0.1:{dns}"), path("config.json"));
        let none = ["-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""];
        pebble.run(Command::new(programs.join("pebble-challtestsrv")).args(none).args([
            "-dnsserver",
            &dns,
            "-management",
            &control,
        ]));
        pebble.run(
            Command::new(programs.join("pebble"))
                .args(["-config", &config, "-dnsserver", &dns])
                .env("PEBBLE_VA_NOSLEEP", "1")
                .env("PEBBLE_WFE_NONCEREJECT", "50")
                .env("PEBBLE_AUTHZREUSE", "0")
                .env("PEBBLE_CHAIN_LENGTH", "2"),
        );
        let is_open = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let limit = Duration::from_secs(30);
        assert!(until(limit, || is_open(port) && is_open(pebble.dns_control)), "pebble listens");
        Some(pebble)
    }

    fn run(&mut self, command: &mut Command) {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let errors = log.try_clone().unwrap();
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        self.processes.push(child.expect("pebble starts"));
    }

    fn write_certificate(&self) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(self.folder.join("authority.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let (issuer, leaf_key) = (Issuer::new(params, key), KeyPair::generate().unwrap());
        let leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap().pem();
        fs::write(self.folder.join("server.pem"), leaf).unwrap();
        fs::write(self.folder.join("server.key"), leaf_key.serialize_pem()).unwrap();
    }

    /// Returns the options of a daemon that uses this server.
    pub fn options(&self) -> Vec<String> {
        let authority = self.folder.join("authority.pem");
        let url = format!("acme_directory=https://127.0.0.1:{}/dir", self.port);
        ["-p".to_owned(), url, "-p".to_owned(), format!("acme_ca_file={}", authority.display())].to_vec()
    }

    /// Writes a program that sets DNS records, and returns its path.
    pub fn hook(&self) -> String {
        let text = format!(
            r#"#!/usr/bin/env python3
import json, os, sys, urllib.request
action, name, value = sys.argv[1:]
command = {{"add": "set-txt", "remove": "clear-txt"}}[action]
body = json.dumps({{"host": name + ".", "value": value}}).encode()
urllib.request.urlopen("http://127.0.0.1:{}/" + command, body).read()
with open("{}", "a") as calls:
    print(action, name, value, *os.getresuid(), file=calls)
"#,
            self.dns_control,
            self.folder.join("calls").display()
        );
        // The program has another user than this test if that is root.
        let calls = self.folder.join("calls");
        fs::write(&calls, "").unwrap();
        fs::set_permissions(&calls, fs::Permissions::from_mode(0o666)).unwrap();
        let path = self.folder.join("hook");
        write_program(&path, &text);
        path.display().to_string()
    }

    /// Returns the calls of the program.
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub fn stop(&mut self) {
        for mut process in self.processes.drain(..) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
