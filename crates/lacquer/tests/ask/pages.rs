//! Pages whose URLs VCL rewrites.

use lacquer_testing::admin::AdminPort;
use lacquer_testing::client::get;
use lacquer_testing::daemon::until;
use serde_json::{Value, json};

use crate::Site;

#[test]
fn purges_find_hosts_in_capitals() {
    let site = Site::start("sub vcl_recv { set req.http.host = \"C.example:80\"; return (hash); }", &[]);
    let is_hit = || {
        let page = get(site.daemon.address, "/minute/x").expect("a page");
        page.header("X-Varnish").is_some_and(|numbers| numbers.contains(' '))
    };
    assert!(!is_hit() && is_hit());
    site.run(&["purge", "http://C.example:80/minute/x"]);
    assert!(!is_hit() && is_hit());
    site.run(&["purge", "http://CXexample:80/minute/x"]);
    assert!(is_hit());
}

#[test]
fn lists_name_pages_as_purges_need_them() {
    let subs = "sub vcl_recv { set req.http.host = \"c\"; set req.url = regsub(req.url, \"\\?utm.*\", \"\"); }\n\
                sub vcl_deliver { set req.url = \"/later\"; }";
    let site = Site::start(subs, &["-w", "127.0.0.1:0"]);
    let port = AdminPort::when_ready(&site.daemon);
    // The header of a hit has two numbers.
    let is_hit = || {
        let page = get(site.daemon.address, "/minute/x?utm=1").expect("a page");
        page.header("X-Varnish").is_some_and(|numbers| numbers.contains(' '))
    };
    let mut row = Value::Null;
    let is_listed = || {
        is_hit();
        let snapshot = port.ask("GET", "/api/v1/snapshot", "").expect("a response");
        let snapshot: Value = serde_json::from_slice(&snapshot.body).unwrap_or_default();
        row = snapshot["busiest"][0].clone();
        !row.is_null()
    };
    assert!(until(is_listed));
    assert_eq!(
        (&row["url"], &row["asked"]),
        (&json!("c/minute/x"), &json!("robust/minute/x?utm=1")),
        "{row}"
    );
    assert!(is_hit());
    let purged = port.ask("POST", "/api/v1/purge", &json!({"url": row["url"]}).to_string());
    assert_eq!(purged.expect("a response").status, 200);
    assert!(!is_hit() && is_hit());
}
