//! `lacquer why` over TLS, HTTP/2 and with a PROXY header.

use std::fs;
use std::path::PathBuf;

use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, sized};

use crate::{Ran, lacquer};

/// A daemon with listeners of several kinds, and the files of its certificate.
struct Secure {
    daemon: Daemon,
    _origin: Origin,
    folder: PathBuf,
    ports: [u16; 3],
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Secure {
    fn start(name: &str) -> Secure {
        let folder = std::env::temp_dir().join(format!("lacquer-why-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let pair =
            rcgen::generate_simple_self_signed(vec!["example.test".to_owned()]).expect("a certificate");
        let (pem, cert, conf) =
            (folder.join("pair.pem"), folder.join("authority.pem"), folder.join("tls.conf"));
        fs::write(&pem, pair.cert.pem() + &pair.signing_key.serialize_pem()).expect("a file");
        fs::write(&cert, pair.cert.pem()).expect("a file");
        let text = format!(
            "frontend = {{ host = \"127.0.0.1\" port = \"0\" name = \"secure\" }}\npem-file = \"{}\"\n",
            pem.display()
        );
        fs::write(&conf, text).expect("a file");
        let origin = Origin::start(sized);
        let options = [
            "-A",
            &conf.display().to_string(),
            "-a",
            "proxied=127.0.0.1:0,PROXY",
            "-p",
            "feature=+http2",
            "-p",
            "why_header=127.0.0.0/8",
        ];
        let mut daemon = Daemon::start(&vcl(origin.address, ""), &options);
        let ports = ["secure", "proxied", "a0"].map(|name| daemon.port_of(name));
        Secure { daemon, _origin: origin, folder, ports }
    }

    fn why(&self, url: &str, port: u16, more: &[&str]) -> Ran {
        let directory = self.daemon.directory();
        let name = directory.to_str().expect("text");
        let to = format!("127.0.0.1:{port}");
        lacquer(&[&["why", url, "-n", name, "--to", &to, "--json"], more].concat())
    }

    /// Checks the outcome, its header, and a text of the explanation.
    fn expect(&self, url: &str, port: u16, more: &[&str], outcome: &str, text: &str) {
        let ran = self.why(url, port, more);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let found = ran.json();
        assert_eq!(found["outcome"], outcome, "{found:#}");
        assert_eq!(found["status"], 200, "{found:#}");
        assert!(found["header"].as_str().is_some_and(|line| line.starts_with(outcome)), "{found:#}");
        assert!(ran.out.contains(text), "{text}: {found:#}");
    }

    fn authority(&self) -> String {
        self.folder.join("authority.pem").display().to_string()
    }
}

#[test]
fn requests_are_sent_over_tls_and_http2() {
    let site = Secure::start("protocols");
    let [secure, proxied, plain] = site.ports;
    let authority = site.authority();
    let trust = ["--cacert", authority.as_str()];
    let url = "https://example.test/100/a";
    site.expect(url, secure, &trust, "miss", "over HTTP/2");
    site.expect(url, secure, &trust, "hit", "over HTTP/2");
    site.expect(url, secure, &["--insecure"], "hit", "over HTTP/2");
    site.expect(url, secure, &["--insecure", "--http2"], "hit", "over HTTP/2");
    let ran = site.why(url, secure, &[&trust[..], &["--http1.1"]].concat());
    assert!(ran.code == Some(0) && !ran.out.contains("over HTTP/2"), "{ran:?}");
    site.expect(url, secure, &[&trust[..], &["-H", "Cookie: a=b"]].concat(), "pass-cookie", "HTTP/2");
    site.expect(url, secure, &[&trust[..], &["--method", "POST"]].concat(), "pass-method", "POST");
    // A large response needs credit.
    site.expect("https://example.test/3000000/b", secure, &trust, "miss", "3000000 bytes");
    site.expect("http://example.test/100/c", plain, &["--http2"], "miss", "over HTTP/2");
    site.expect("http://example.test/100/c", plain, &[], "hit", "example.test");
    site.expect("http://example.test/100/c", proxied, &["--proxy-header"], "hit", "example.test");
}

#[test]
fn certificates_are_checked() {
    let mut site = Secure::start("checks");
    let [secure, _, plain] = site.ports;
    let authority = site.authority();
    let other = site.folder.join("other.pem");
    let pair = rcgen::generate_simple_self_signed(vec!["example.test".to_owned()]).expect("a certificate");
    fs::write(&other, pair.cert.pem()).expect("a file");
    let other = other.display().to_string();
    let good = "https://example.test/100/a";
    for (url, port, more, message) in [
        (good, secure, &["--cacert", &*other][..], "not valid for example.test"),
        ("https://other.test/100/a", secure, &["--cacert", &authority], "not valid for other.test"),
        (good, secure, &["--cacert", "/nonexistent"], "--cacert /nonexistent"),
        (good, plain, &["--insecure"], "not speak TLS"),
        (good, secure, &["--insecure", "--http2", "--http1.1"], "exclude each other"),
        ("http://example.test/100/a", secure, &[], "https"),
    ] {
        let ran = site.why(url, port, more);
        assert!(ran.code == Some(2) && ran.err.contains(message), "{url} {more:?}: {ran:?}");
        assert!(!ran.err.contains('\x1b') && ran.out.is_empty(), "{ran:?}");
    }
    site.daemon.ok("param.set feature -http2");
    let ran = site.why(good, secure, &["--insecure", "--http2"]);
    assert!(ran.code == Some(2) && ran.err.contains("HTTP/2"), "{ran:?}");
    // No request was sent.
    let ran = site.why(good, secure, &["--insecure"]);
    assert_eq!(ran.json()["outcome"], "miss", "{ran:?}");
}
