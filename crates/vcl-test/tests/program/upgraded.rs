//! Old VCL behaves after its upgrade as it did before.

use lacquer_tools::upgrade;

use super::run;

#[test]
fn a_lifetime_of_vcl_fetch_applies_to_no_cache() {
    let old = "backend b { .host = \"192.0.2.1\"; }\n\
        sub vcl_fetch { if (req.url ~ \"^/news\") { set beresp.ttl = 1h; } }\n";
    let new = upgrade("old.vcl", old.as_bytes(), None).expect("the text has a structure").text;
    let new = String::from_utf8(new).expect("the text is UTF-8");
    let test = |answer: &str| {
        format!(
            "origin 200\n    {answer}\n\ntest \"news are cached\"\n  GET /news\n  expect miss\n  GET /news\n  expect hit\n\
             test \"other pages are not\"\n  GET /a\n  expect miss\n  GET /a\n  expect hit-for-miss\n"
        )
    };
    for answer in ["Cache-Control: no-cache, max-age=0", "Cache-Control: private, max-age=0"] {
        let ran = run("upgraded", &new, test(answer), &[]);
        assert_eq!(ran.code, Some(0), "{answer}\n{ran:?}");
    }
    let cookie = run("upgraded-cookie", &new, test("Set-Cookie: a=b"), &[]);
    assert_eq!(
        cookie.code,
        Some(1),
        "pages with cookies are not cached, whatever their lifetime: {cookie:?}"
    );
}
