//! Subroutines and files that several subroutines of the flow use.

use super::{BACKEND, MARK, loads, upgraded};

#[test]
fn failed_fetches_have_their_own_versions_of_what_vcl_error_calls() {
    let new = loads(&format!(
        "{BACKEND}sub style {{ set obj.http.S = obj.status; }}\n\
         sub page {{ set obj.http.X = \"1\"; call style; synthetic {{\"x\"}} obj.status; }}\n\
         sub vcl_recv {{ lookup; }}\nsub vcl_error {{ call page; }}\n"
    ));
    for part in [
        "sub style { set resp.http.S = resp.status; }",
        "sub style_backend { set beresp.http.S = beresp.status; }",
        "sub page { set resp.http.X = \"1\"; call style; synthetic({\"x\"} + resp.status); }",
        "sub page_backend { set beresp.http.X = \"1\"; call style_backend; synthetic({\"x\"} + beresp.status); }",
        "sub vcl_synth { call page; }",
        "sub vcl_backend_error { call page_backend; }",
    ] {
        assert!(new.contains(part), "{part}\n{new}");
    }
    assert!(!new.contains(MARK), "{new}");
}

#[test]
fn the_name_of_a_second_version_is_free() {
    let new = loads(&format!(
        "{BACKEND}acl page_backend {{ \"::1\"; }}\nsub page {{ synthetic {{\"x\"}}; }}\nsub vcl_error {{ call page; }}\n"
    ));
    assert!(new.contains("sub page_backend_error {") && new.contains("call page_backend_error;"), "{new}");
}

#[test]
fn files_of_vcl_error_are_marked_in_its_copy() {
    for statement in ["include \"page.vcl\";", "call elsewhere;"] {
        let new = upgraded(&format!("{BACKEND}sub vcl_error {{\n    {statement}\n}}\n"));
        assert_eq!((new.matches(statement).count(), new.matches(MARK).count()), (2, 1), "{new}");
        let copy = &new[new.find("sub vcl_backend_error {").expect("a copy")..];
        assert!(copy.contains(MARK), "{new}");
    }
}

#[test]
fn vcl_fetch_calls_the_second_version_of_what_vcl_error_calls_too() {
    let new = loads(&format!(
        "{BACKEND}sub deep {{ set obj.http.X = req.url; }}\nsub own {{ call deep; }}\n\
         sub vcl_recv {{ lookup; }}\nsub vcl_error {{ call deep; }}\nsub vcl_fetch {{ call own; call deep; }}\n"
    ));
    for part in [
        "sub deep { set resp.http.X = req.url; }",
        "sub deep_backend { set beresp.http.X = bereq.url; }",
        "sub own { call deep_backend; }",
        "sub vcl_synth { call deep; }",
        "sub vcl_backend_error { call deep_backend; }",
        "sub vcl_backend_response { call own; call deep_backend; }",
    ] {
        assert!(new.contains(part), "{part}\n{new}");
    }
    assert!(!new.contains(MARK), "{new}");
}

#[test]
fn a_subroutine_of_vcl_fetch_and_the_client_has_the_variables_of_the_client() {
    let new = upgraded(&format!(
        "{BACKEND}sub h {{ set req.http.X = req.url; }}\nsub vcl_deliver {{ call h; }}\nsub vcl_fetch {{ call h; }}\n"
    ));
    assert!(new.contains("for the backend's side\nsub h { set req.http.X = req.url; }"), "{new}");
}
