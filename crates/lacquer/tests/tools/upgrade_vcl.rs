//! `lacquer upgrade-vcl`: old configurations load afterwards, with the modules of the product.

use super::{Commands as _, Folder};

/// A configuration in the style of Varnish 3.
const THREE: &str = r#"# The shop.
backend web1 {
  .host = "127.0.0.1";
  .port = "8080";
  .probe = { .url = "/health"; .interval = 5s; .timeout = 1s; .window = 5; .threshold = 3; }
}
backend web2 { .host = "127.0.0.2"; }
director web random { { .backend = web1; .weight = 2; } { .backend = web2; .weight = 1; } }
acl purgers { "localhost"; "10.0.0.0"/8; }

sub vcl_recv {
  set req.backend = web;
  if (req.request == "PURGE") {
    if (!client.ip ~ purgers) { error 405 "Not allowed."; }
    return (lookup);
  }
  if (req.backend.healthy) { set req.grace = 30s; } else { set req.grace = 1h; }
  if (req.restarts == 0) {
    if (req.http.x-forwarded-for) {
      set req.http.X-Real = req.http.X-Forwarded-For ", " client.ip;
    }
  }
  if (req.url ~ "\.(png|gif|jpg|css|js)$") { remove req.http.Cookie; return (lookup); }
  if (req.http.Authorization || req.http.Cookie ~ "session") { return (pass); }
  if (req.url ~ "^/old") { error 750 "/new"; }
  return (lookup);
}
sub vcl_hash { hash_data(req.url); if (req.http.host) { hash_data(req.http.host); } else { hash_data(server.ip); } return (hash); }
sub vcl_hit { if (req.request == "PURGE") { purge; error 200 "Purged."; } return (deliver); }
sub vcl_miss { if (req.request == "PURGE") { purge; error 404 "Not in cache."; } return (fetch); }
sub vcl_fetch {
  if (beresp.status >= 500 && req.restarts < 2) { return (restart); }
  if (req.url ~ "\.(png|gif)$") { unset beresp.http.set-cookie; set beresp.ttl = 1d; }
  if (beresp.ttl <= 0s || beresp.http.Set-Cookie || beresp.http.Vary == "*") {
    set beresp.ttl = 120s;
    return (hit_for_pass);
  }
  set beresp.grace = 1h;
  return (deliver);
}
sub vcl_deliver {
  if (obj.hits > 0) { set resp.http.X-Cache = "HIT " obj.hits; } else { set resp.http.X-Cache = "MISS"; }
  return (deliver);
}
sub vcl_error {
  if (obj.status == 750) { set obj.http.Location = obj.response; set obj.status = 301; return (deliver); }
  set obj.http.Content-Type = "text/html; charset=utf-8";
  synthetic {"<html><h1>Error "} obj.status " " obj.response {"</h1>
<p>XID: "} req.xid {"</p></html>"};
  return (deliver);
}
"#;

/// A configuration in the style of Varnish 2.
const TWO: &str = r#"backend default { .host = "127.0.0.1"; .port = "80"; }
acl purge { "localhost"; }
sub vcl_recv {
  if (req.request == "PURGE") {
    if (!client.ip ~ purge) { error 405 "Not allowed."; }
    purge("req.url == " req.url " && req.http.host == " req.http.host);
    error 200 "Purged.";
  }
  if (req.request != "GET" && req.request != "HEAD") { pipe; }
  if (req.http.Cookie) { pass; }
  lookup;
}
sub vcl_hash { set req.hash += req.url; set req.hash += req.http.host; hash; }
sub vcl_hit { if (!obj.cacheable) { pass; } deliver; }
sub vcl_fetch {
  if (!obj.cacheable) { pass; }
  if (obj.http.Set-Cookie) { pass; }
  if (req.url ~ "\.html$") { esi; }
  set obj.prefetch = -30s;
  insert;
}
sub vcl_deliver { deliver; }
"#;

/// A configuration in the style of Varnish 4.0.
const FOUR: &str = r#"vcl 4.0;
import std;
backend default { .host = "127.0.0.1"; }
sub vcl_hit {
    if (obj.ttl >= 0s) { return (deliver); }
    if (!std.healthy(req.backend_hint) && obj.ttl + obj.grace > 0s) { return (deliver); }
    return (fetch);
}
"#;

#[test]
fn old_configurations_load_afterwards() {
    let folder = Folder::new("tools-upgrade");
    for (name, old) in [("three", THREE), ("two", TWO), ("four", FOUR)] {
        folder.file(&format!("{name}.vcl"), old);
        assert_eq!(folder.lacquer(&format!("check {name}.vcl")).code, Some(1), "{name} is old");
        let ran = folder.lacquer(&format!("upgrade-vcl {name}.vcl"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        folder.file("new.vcl", &ran.out);
        let checked = folder.lacquer("check new.vcl");
        assert_eq!(checked.code, Some(0), "{name}:\n{}\n{}", ran.out, checked.out);
        assert_eq!(folder.lacquer("fmt new.vcl").code, Some(0));
    }
}

#[test]
fn a_text_without_structure_has_an_error() {
    let folder = Folder::new("tools-upgrade-wrong");
    folder.file("wrong.vcl", "sub vcl_recv { if (a { } }\n");
    let ran = folder.lacquer("upgrade-vcl wrong.vcl");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.contains("--> wrong.vcl:1"), "{ran:?}");
    assert_eq!(folder.lacquer("upgrade-vcl missing.vcl").code, Some(2));
}

#[test]
fn a_result_that_does_not_load_is_announced() {
    let folder = Folder::new("tools-upgrade-unfinished");
    folder.file(
        "old.vcl",
        "backend b { .host = \"app.invalid\"; }\nsub h { set req.http.a = \"1\"; }\n\
         sub vcl_recv { call h; }\nsub vcl_fetch { call h; }\n",
    );
    let ran = folder.lacquer("upgrade-vcl old.vcl");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.out.starts_with("vcl 4.1;") && ran.out.contains("# UPGRADE:"), "{ran:?}");
    for part in ["--> <result>:", "does not load yet"] {
        assert!(ran.err.contains(part), "{part}\n{}", ran.err);
    }
}

#[test]
fn a_part_of_a_subroutine_is_upgraded_for_it() {
    let folder = Folder::new("tools-upgrade-part");
    folder.file("fetch.vcl", "if (req.request == \"POST\") { return (hit_for_pass); }\n");
    let ran = folder.lacquer("upgrade-vcl fetch.vcl");
    let new = "if (bereq.method == \"POST\") { return (pass(120s)); }\n";
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), new), "{ran:?}");
    assert!(ran.err.contains("a part of vcl_fetch (for another one: --in NAME)"), "{ran:?}");
    folder.file("recv.vcl", "if (req.request == \"POST\") { pass; }\n");
    let ran = folder.lacquer("upgrade-vcl --in vcl_miss recv.vcl");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("a part of vcl_miss;"), "{ran:?}");
    for wrong in ["--in vcl_unknown", "-p vcl_dir=x"] {
        let ran = folder.lacquer(&format!("upgrade-vcl {wrong} recv.vcl"));
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    }
    folder.file("fetch.vcl", "set bereq.http.a = \"1\";\n");
    let ran = folder.lacquer("upgrade-vcl fetch.vcl");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    let ran = folder.lacquer("upgrade-vcl --in vcl_purge recv.vcl");
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_result_that_shares_private_responses_is_announced() {
    let folder = Folder::new("tools-upgrade-private");
    let backend = "backend b { .host = \"127.0.0.1\"; }\n";
    for (name, rest, is_announced) in
        [("end", "", true), ("action", "return (deliver);", false), ("zero", "set beresp.ttl = 0s;", true)]
    {
        folder.file("old.vcl", format!("{backend}sub vcl_fetch {{ set beresp.ttl = 1h; {rest} }}\n"));
        let ran = folder.lacquer("upgrade-vcl old.vcl");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.err.contains("remove vcl_beresp_control"), is_announced, "{name}: {ran:?}");
    }
}

#[test]
fn included_files_are_found_beside_the_old_one() {
    let folder = Folder::new("tools-upgrade-includes");
    let old =
        "include \"parts.vcl\";\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { call part; lookup; }\n";
    folder.file("site/old.vcl", old);
    folder.file("site/parts.vcl", "sub part { set req.http.a = \"1\"; }\n");
    let ran = folder.lacquer("upgrade-vcl site/old.vcl");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    folder.file("site/new.vcl", &ran.out);
    let ran = folder.lacquer("upgrade-vcl -p vcl_path=other site/old.vcl");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    folder.file("other/parts.vcl", "sub part { set req.nothing = \"1\"; }\n");
    let ran = folder.lacquer("upgrade-vcl -p vcl_path=other site/old.vcl");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("--> other/parts.vcl:1"), "{}", ran.err);
}
