//! Responses that reach the end of `vcl_fetch`.

use super::{BACKEND, MARK, loads, upgraded};
use crate::upgrade::upgrade;

const END: &str = " only Lacquer has param.rfc9111.\nsub vcl_beresp_control {\n    if (!param.rfc9111) {\n        return;\n    }\n}\n";

#[test]
fn a_lifetime_of_the_text_applies_to_responses_that_forbid_caching() {
    for old in [
        "sub vcl_fetch { if (req.url ~ \"x\") { set beresp.ttl = 1h; } }\n",
        "sub vcl_fetch { if (req.url ~ \"x\") { set obj.ttl = 0.5h; } else { return (deliver); } unset obj.http.a; }\n",
        "sub vcl_fetch { { set beresp.ttl = 1h; } if (req.url ~ \"x\") { return (deliver); } }\n",
        "sub h { set beresp.ttl = 1h; }\nsub vcl_fetch { call h; }\n",
        "sub vcl_fetch { set beresp.ttl = 1h; }\nsub vcl_fetch { unset beresp.http.a; }\n",
    ] {
        let new = loads(&format!("{BACKEND}{old}"));
        assert_eq!(new.matches(END).count(), 1, "{new}");
        assert!(!new.contains(MARK), "{new}");
    }
    for old in ["sub vcl_fetch { include \"lifetimes.vcl\"; }\n", "sub vcl_fetch { call another_file; }\n"] {
        assert!(upgraded(&format!("{BACKEND}{old}")).contains(END), "{old}");
    }
}

#[test]
fn other_responses_meet_the_test_of_today() {
    for old in [
        "sub vcl_fetch { unset beresp.http.Set-Cookie; }\n",
        "sub vcl_fetch { set beresp.ttl = 1h; return (deliver); }\n",
        "sub vcl_fetch { set beresp.ttl = 1h; deliver; }\n",
        "sub vcl_fetch { set beresp.ttl = 1h; }\nsub vcl_fetch { return (deliver); }\n",
        "sub vcl_error { set obj.ttl = 5s; }\nsub vcl_fetch { unset beresp.http.a; }\n",
        "sub vcl_fetch { if (beresp.status >= 500) { set beresp.ttl = 0s; } unset beresp.http.a; }\n",
        "sub vcl_fetch { if (req.url ~ \"x\") { set obj.ttl = 1h; return (deliver); } unset obj.http.a; }\n",
        "sub vcl_fetch { if (req.url ~ \"x\") { if (req.http.a) { set obj.ttl = 1h; } deliver; } unset obj.http.a; }\n",
        "sub vcl_fetch { if (req.url ~ \"x\") { include \"x.vcl\"; return (deliver); } unset obj.http.a; }\n",
        "sub vcl_backend_response { set beresp.ttl = 1h; }\n",
    ] {
        let new = upgraded(&format!("{BACKEND}{old}"));
        assert!(!new.contains("vcl_beresp_control"), "{new}");
    }
    let old = format!("{BACKEND}sub vcl_fetch {{ set beresp.ttl = 1h; }}\n");
    assert!(upgrade("old.vcl", old.as_bytes(), None).unwrap().caches_private);
    assert!(!upgrade("old.vcl", BACKEND.as_bytes(), None).unwrap().caches_private);
}
