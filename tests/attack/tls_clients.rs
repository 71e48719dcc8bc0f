//! Clients with and without certificates, and sessions that clients resume: by curl, OpenSSL and rustls.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

use lacquer_testing::daemon::Daemon;
use lacquer_testing::slots::shared_slot;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SerialNumber};

use crate::tls::{Served, connect, start, start_with, tls_client};

const FACTS: &str = r"import tls;
sub vcl_deliver {
    set resp.http.verified = tls.client_verified();
    set resp.http.subject = tls.client_subject();
    set resp.http.cn = tls.client_cn();
    set resp.http.issuer = tls.client_issuer();
    set resp.http.serial = tls.client_serial();
    set resp.http.print = tls.client_fingerprint();
    set resp.http.until = tls.client_not_after();
    set resp.http.client-cert = tls.client_cert();
}";

/// An authority for clients, and the folder in which its files are.
pub struct People {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl People {
    pub fn new(name: &str) -> People {
        let folder = std::env::temp_dir().join(format!("lacquer-people-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary directory");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let people = People { issuer, folder };
        people.write("ca.pem", &people.issuer.pem());
        people
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Creates a client's certificate with its key, and returns the name of its file.
    fn client(&self, name: &str) -> String {
        let pem = self.certificate(name, None);
        self.write(&format!("{name}.pem"), &pem)
    }

    /// Creates a client's certificate with its key, maybe with another end of its validity.
    pub fn certificate(&self, name: &str, end: Option<SystemTime>) -> String {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(0xab_cdef_u64));
        params.not_after = end.map_or(params.not_after, Into::into);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        certificate.pem() + &key.serialize_pem()
    }

    pub fn listener(&self, verify: &str) -> String {
        format!(",client-verify={verify},client-verify-ca={}", self.folder.join("ca.pem").display())
    }
}

impl Drop for People {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns what curl prints of a response and its errors.
fn curl(served: &Served, options: &[&str]) -> String {
    let url = format!("https://{}/100", served.address);
    let output = Command::new("curl").args(["-ksSi", "--max-time", "10"]).args(options).arg(url).output();
    let output = output.expect("curl runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Sends a request with OpenSSL's client and returns what it prints.
fn s_client(served: &Served, options: &str) -> String {
    let script = format!(
        r"(printf 'GET /100 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'; sleep 0.5) |
          openssl s_client -connect {} -ign_eof {options} 2>&1",
        served.address
    );
    let output = Command::new("sh").args(["-c", &script]).output().expect("the shell runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A client proves its identity with a certificate of a known authority, and VCL gets the facts. Others are refused, and
/// the log names the check that failed.
#[test]
fn clients_are_verified_by_their_certificates() {
    let _slot = shared_slot();
    let (people, others) = (People::new("people"), People::new("others"));
    let (alice, mallory) = (people.client("alice"), others.client("mallory"));
    let mut served = start_with(FACTS, &people.listener("required"), &[]);
    for version in ["1.2", "1.3"] {
        let known = curl(&served, &["--tls-max", version, "--cert", &alice]);
        for expected in [
            "verified: true",
            "CN=alice",
            r"O=Example\, Inc.",
            "cn: alice",
            "CN=people",
            "serial: ABCDEF",
            "client-cert: :MII",
        ] {
            assert!(known.contains(expected), "{expected}: {known}");
        }
        let nobody = curl(&served, &[]);
        assert!(nobody.contains("curl:") && !nobody.contains("HTTP/"), "{nobody}");
        let foreign = curl(&served, &["--cert", &mallory]);
        assert!(foreign.contains("curl:") && !foreign.contains("HTTP/"), "{foreign}");
    }
    assert!(served.daemon.logs("peer did not return a certificate"));
    assert!(served.daemon.logs("certificate verify failed: unable to get local issuer certificate"));

    // A file that is half written does not replace the authorities in use; a whole one does.
    people.write("ca.pem", &people.issuer.pem()[..200]);
    let (status, text) = served.daemon.cli("tls.cert.reload");
    assert!(
        status != 200 && text.contains("client-verify-ca") && text.contains("has no end"),
        "{status} {text}"
    );
    assert!(curl(&served, &["--cert", &alice]).contains("CN=alice"));
    people.write("ca.pem", &others.issuer.pem());
    served.daemon.ok("tls.cert.reload");
    assert!(curl(&served, &["--cert", &alice]).contains("curl:"));
    assert!(curl(&served, &["--cert", &mallory]).contains("CN=mallory"));
}

/// With TLS 1.3, a client has sent requests before it learns that its certificate is refused. It gets the alert
/// nevertheless, and not a reset.
#[test]
fn a_refused_client_gets_the_alert_though_it_has_sent_requests() {
    let _slot = shared_slot();
    let people = People::new("eager");
    let served = start_with("", &people.listener("required"), &[]);
    for round in 0..20 {
        let mut client = tls_client(served.address);
        client.conn.writer().write_all(&[b'x'; 16_000]).expect("it is buffered");
        let shaken = client.conn.complete_io(&mut client.sock).map(|_| ());
        let read = shaken.and_then(|()| client.read(&mut [0; 100]).map(|_| ()));
        let text = read.expect_err("no certificate").to_string();
        assert!(text.contains("CertificateRequired"), "round {round}: {text}");
    }
}

/// A session that OpenSSL resumes has the facts of the certificate that began it. A listener without such a client works.
#[test]
fn resumed_sessions_keep_the_identity() {
    let _slot = shared_slot();
    let people = People::new("resumed");
    let alice = people.client("alice");
    let served = start_with(FACTS, &people.listener("optional"), &[]);
    for version in ["-tls1_2", "-tls1_3"] {
        let session = people.folder.join("session").display().to_string();
        let first = s_client(&served, &format!("{version} -cert {alice} -sess_out {session}"));
        assert!(first.contains("New, ") && first.contains("cn: alice"), "{first}");
        let second = s_client(&served, &format!("{version} -sess_in {session}"));
        assert!(second.contains("Reused, ") && second.contains("cn: alice"), "{second}");
    }
    let nobody = s_client(&served, "");
    assert!(nobody.contains("verified: false") && !nobody.contains("subject: CN"), "{nobody}");
}

/// An origin behind `.proxy_header = 2` gets the facts of the client's TLS, and a second proxy passes them on.
#[test]
fn the_proxy_header_carries_the_facts() {
    let _slot = shared_slot();
    let facts = r#"vcl 4.1; import proxy; backend default none;
    sub vcl_recv { return (synth(200)); }
    sub vcl_synth {
        set resp.http.ssl = proxy.is_ssl() + " " + proxy.client_has_cert_conn() + " " + proxy.ssl_verify_result();
        set resp.http.facts = proxy.ssl_version() + " " + proxy.ssl_cipher() + " " + proxy.alpn() + " " + proxy.cert_key();
        set resp.http.names = proxy.authority() + " " + proxy.client_cert_cn();
    }"#;
    let proxied = |port: u16| {
        format!(
            "backend chained {{ .host = \"127.0.0.1\"; .port = \"{port}\"; .proxy_header = 2; }}
            sub vcl_recv {{ set req.backend_hint = chained; return (pass); }}"
        )
    };
    let people = People::new("proxied");
    let alice = people.client("alice");
    let mut last = Daemon::start(facts, &["-a", "in=127.0.0.1:0,PROXY"]);
    let through = format!("vcl 4.1; backend default none; {}", proxied(last.port_of("in")));
    let mut middle = Daemon::start(&through, &["-a", "in=127.0.0.1:0,PROXY"]);
    for port in [last.port_of("in"), middle.port_of("in")] {
        let served = start_with(&proxied(port), &people.listener("optional"), &[]);
        let url = format!("https://example.test:{}/", served.address.port());
        let resolve = format!("example.test:{}:127.0.0.1", served.address.port());
        let ask = |options: &[&str]| {
            let all = [&["-ksSi", "--http1.1", "--tls-max", "1.3", "--resolve", &resolve, &url][..], options]
                .concat();
            let output = Command::new("curl").args(all).output().expect("curl runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let known = ask(&["--cert", &alice]);
        for expected in
            ["ssl: true true 0", "facts: TLSv1.3 TLS_", " http/1.1 EC256", "names: example.test alice"]
        {
            assert!(known.contains(expected), "{expected}: {known}");
        }
        let nobody = ask(&[]);
        assert!(nobody.contains("ssl: true false 1"), "{nobody}");
        assert!(!nobody.contains("alice"), "{nobody}");
    }
}

/// curl and OpenSSL talk HTTP/1.1 and HTTP/2 with each version, and resume their sessions.
#[test]
fn real_clients_are_served() {
    let _slot = shared_slot();
    let served = start(&[]);
    for (options, protocol) in [
        (&["--http1.1", "--tls-max", "1.2"][..], "HTTP/1.1 200"),
        (&["--http1.1"], "HTTP/1.1 200"),
        (&["--http2"], "HTTP/2 200"),
        (&["--http2", "--tls-max", "1.2"], "HTTP/2 200"),
        (&["--no-alpn"], "HTTP/1.1 200"),
        (&["--ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305", "--tls-max", "1.2"], " 200"),
    ] {
        let response = curl(&served, options);
        assert!(response.contains(protocol), "{options:?}: {response}");
    }
    let folder = People::new("sessions");
    for version in ["-tls1_2", "-tls1_3"] {
        let session = folder.folder.join("session").display().to_string();
        assert!(s_client(&served, &format!("{version} -sess_out {session}")).contains("New, "));
        assert!(s_client(&served, &format!("{version} -sess_in {session}")).contains("Reused, "));
    }
    let old = s_client(&served, "-tls1_1");
    assert!(!old.contains("HTTP/1.1 200"), "{old}");
}

/// A ticket of another server leads to a full handshake, and so does a damaged one.
#[test]
fn foreign_tickets_lead_to_full_handshakes() {
    let _slot = shared_slot();
    let (one, other) = (start(&[]), start(&[]));
    let folder = People::new("tickets");
    for version in ["-tls1_2", "-tls1_3"] {
        let session = folder.folder.join("session").display().to_string();
        assert!(s_client(&one, &format!("{version} -sess_out {session}")).contains("New, "));
        let foreign = s_client(&other, &format!("{version} -sess_in {session}"));
        assert!(foreign.contains("New, ") && foreign.contains("HTTP/1.1 200"), "{foreign}");
    }
    other.serves();
}

/// A request in 10,000 records of one byte is served. Empty records and warnings in a row are limited.
#[test]
fn tiny_records_are_served_and_empty_ones_limited() {
    let _slot = shared_slot();
    let served = start(&[]);
    let mut client = crate::tls::tls_client(served.address);
    let field = "x".repeat(9_900 - 64);
    let request = format!(
        "POST /100 HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{field}",
        field.len()
    );
    for byte in request.as_bytes() {
        client.conn.writer().write_all(&[*byte]).expect("memory");
        // Each call seals one record.
        client.conn.write_tls(&mut client.sock).expect("it reads");
    }
    let mut response = Vec::new();
    let _ = client.read_to_end(&mut response);
    assert!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));

    let begun = std::time::Instant::now();
    let mut stream = connect(served.address);
    let hello = crate::tls::hello();
    stream.write_all(&hello).expect("it reads");
    // Warnings before the keys are agreed on.
    let _ = stream.write_all(&[0x15, 3, 3, 0, 2, 1, 90].repeat(10_000));
    assert!(crate::tls::closed(&mut stream).is_some());
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    served.serves();
}
