//! `lacquer run --admin`: a site that is managed from elsewhere.

use std::fs;
use std::net::TcpListener;

use lacquer_testing::{Folder, free_address};

use crate::{App, Site, lacquer};

#[test]
fn manage_it_by_address_and_secret() {
    let app = App::start("Cache-Control: max-age=60\r\n");
    let address = free_address().to_string();
    let port = address.rsplit(':').next().expect("it has a port");
    let site = Site::start(&["--backend", &app.url(), "--admin", port], &[]);
    let secret = site.folder.join("instance/_.secret").display().to_string();
    let started = site.folder.read("out");
    assert!(started.contains(&format!("--address {address} --secret {secret}")), "{started}");
    assert_eq!(site.get("/"), "page 1");
    let run = |words: &[&str], secret: &str| {
        lacquer(&site.folder, &[words, &["--address", &address, "--secret", secret]].concat())
    };
    let (code, out, err) = run(&["param", "default_ttl"], &secret);
    assert!(code == Some(0) && out.contains("default_ttl"), "{out}{err}");
    assert_eq!(run(&["ban", "req.url ~ ."], &secret).0, Some(0));
    assert_eq!(site.get("/"), "page 2");
    let other = site.folder.join("other");
    fs::write(&other, "guessed\n").expect("it can be written");
    let (code, out, _) = run(&["param", "default_ttl"], &other.display().to_string());
    assert!(code == Some(2) && out.is_empty(), "{out}");
}

#[test]
fn a_secret_of_ones_own_is_used() {
    let app = App::start("Cache-Control: max-age=60\r\n");
    let port = free_address().port();
    let settings = format!("backend = \"{}\"\nadmin = \":{port}\"\nsecret = \"key\"\n", app.url());
    let site = Site::start(&[], &[("lacquer.toml", &settings), ("key", "a secret of my own\n")]);
    let address = format!("127.0.0.1:{port}");
    let words = ["param", "default_ttl", "--address", &address, "--secret", "key"];
    assert_eq!(lacquer(&site.folder, &words).0, Some(0));
}

#[test]
fn mistakes_are_explained_before_anything_starts() {
    let folder = Folder::new("site");
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let taken = taken.local_addr().expect("it is bound").to_string();
    for (words, message) in [
        (&["--admin", "x"][..], "--admin x: it is not HOST:PORT"),
        (&["--admin", "/tmp/socket"], "it is not HOST:PORT"),
        (&["--admin", &taken], "another program uses port"),
        (&["--admin", "6082", "--secret", "gone"], "--secret gone: there is no such file"),
        (&["--secret", "gone"], "--secret needs --admin"),
    ] {
        let free = free_address().to_string();
        let words = [&["run", "--backend", "127.0.0.1:1", "--listen", &free], words].concat();
        let (code, out, err) = lacquer(&folder, &words);
        assert!(code == Some(2) && err.contains(message) && out.is_empty(), "{words:?}: {out}{err}");
    }
}
