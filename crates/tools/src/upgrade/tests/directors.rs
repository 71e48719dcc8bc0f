//! Comments and fields of directors.

use super::{BACKEND, MARK, loads, upgraded};

#[test]
fn comments_of_directors_remain() {
    let new = loads(&format!(
        "{BACKEND}director lb random {{ # main pool\n  {{ .backend = default; /* the\n first */ }} // primary\n\
         \x20 # {{ .backend = web3; }} out of service\n  {{ .backend = {{ .host = \"127.0.0.2\"; # local\n }} }}\n}} sub vcl_recv {{ lookup; }}\n"
    ));
    let expected = "# The director lb is made in vcl_init.\n# main pool\n/* the\n first */\n// primary\n\
        \x20 # { .backend = web3; } out of service\nbackend lb_2 { .host = \"127.0.0.2\"; # local\n }\n \
        sub vcl_recv { return (hash); }\n";
    assert!(new.contains(expected) && !new.contains(MARK), "{new}");
}

#[test]
fn fields_of_directors_without_a_replacement_are_marked() {
    let new = loads(&format!(
        "{BACKEND}director lb random {{\n  .retries = 5;\n  {{ .backend = default; .weight = 1; }}\n\
         \x20 {{ .backend = {{ .host = \"127.0.0.2\";\n .saintmode_threshold = 5; }} .weight = 2; }}\n}}\n"
    ));
    for part in [
        "# UPGRADE: there is no replacement for this: .retries = 5;\n# The director lb is made in vcl_init.\n",
        " # UPGRADE: saint mode is the module saintmode now\n # .saintmode_threshold = 5;\n }",
        "lb.add_backend(lb_2, 2.0);",
    ] {
        assert!(new.contains(part), "{part}\n{new}");
    }
    assert_eq!(new.matches(MARK).count(), 2, "{new}");
    let new = upgraded(
        "director d dns {\n  .list = {\n    .port = \"80\"; # web\n    \"10.0.0.0\"/24;\n  }\n  .ttl = 5m;\n}\n",
    );
    for part in [
        "this: .list = { .port = \"80\"; \"10.0.0.0\" / 24; }\n",
        "this: .ttl = 5 m;\n# The director d is made in vcl_init.\n# web\n",
    ] {
        assert!(new.contains(part), "{part}\n{new}");
    }
}
