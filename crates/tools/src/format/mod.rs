//! Formats a VCL text. The tokens and the comments remain the same; only the white space between them changes.
//!
//! `grammar` checks the text and decides where each token stands, `layout` writes the tokens with their comments. The
//! result is read again and compared, so that no fault in either can change the meaning of a text.

mod comments;
mod grammar;
mod layout;

use lacquer_vcl::Diagnostic;
use lacquer_vcl::tokens::{Token, error_at, tokens};

/// Returns the formatted text. Fails at the first token that cannot stand at its position; includes and names are not
/// looked up, so a part of a program can be formatted alone.
pub fn format(name: &str, text: &[u8]) -> Result<Vec<u8>, Box<Diagnostic>> {
    let before = tokens(name, text)?;
    let places = grammar::places(text, &before).map_err(|fault| {
        let mut diagnostic = error_at(name, text, before[fault.token].span, &fault.message);
        diagnostic.hint = fault.hint.map(str::to_owned);
        diagnostic
    })?;
    let formatted = layout::write(text, &before, &places);
    match tokens(name, &formatted) {
        Ok(after) if content(text, &before).eq(content(&formatted, &after)) => Ok(formatted),
        _ => {
            let message = "This text cannot be formatted without a change of its meaning; it is left alone.";
            Err(error_at(name, text, before[0].span, message))
        }
    }
}

/// Returns the comments and tokens of a text in their order, without the white space that formatting may change.
fn content<'t>(text: &'t [u8], tokens: &'t [Token]) -> impl Iterator<Item = Vec<u8>> + 't {
    let mut end = 0;
    tokens.iter().flat_map(move |token| {
        let (from, to) = (token.span.start as usize, token.span.end as usize);
        let gap = &text[end..from];
        end = to;
        let comments = comments::comments(gap).map(|comment| comment.content());
        comments.chain([text[from..to].to_vec()]).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str) -> String {
        let first = format("test.vcl", text.as_bytes()).unwrap_or_else(|d| panic!("{text}\n{}", d.pretty()));
        let again = format("test.vcl", &first).unwrap();
        assert_eq!(String::from_utf8_lossy(&first), String::from_utf8_lossy(&again), "is not idempotent");
        String::from_utf8(first).unwrap()
    }

    fn error(text: &str) -> String {
        match format("test.vcl", text.as_bytes()) {
            Ok(out) => panic!("formatted: {}", String::from_utf8_lossy(&out)),
            Err(diagnostic) => diagnostic.pretty(),
        }
    }

    #[test]
    fn statements_stand_on_lines_of_their_own() {
        let text = "vcl 4.1 ;import std ;sub vcl_recv{if(req.url~\"^/a\"&&!req.http.Cookie){set req.http.x=\"a\"+\n\
                    std.tolower( req.url );return(pass);}elseif(client.ip!~local){ban( \"a\" );}else{}\n\
                    set req.ttl=- 1s+2 m;call   x ;return;}";
        let expected = r#"vcl 4.1;
import std;

sub vcl_recv {
    if (req.url ~ "^/a" && !req.http.Cookie) {
        set req.http.x = "a" +
            std.tolower(req.url);
        return (pass);
    } elseif (client.ip !~ local) {
        ban("a");
    } else {}
    set req.ttl = -1s + 2m;
    call x;
    return;
}
"#;
        assert_eq!(formatted(text), expected);
    }

    #[test]
    fn declarations_keep_their_form() {
        let text = r#"vcl 4.1;
backend a{.host="127.0.0.1";.port="80";}
backend b none;
backend c {
 .host = "c"; .probe={.url="/";.interval=1s;}
 .probe_x = p; .timeout = 1.5s;
}
acl l +log -fold { "10.0.0.0"/8;! "10.0.0.1";("host"/24);
}
probe p { .request = "GET / HTTP/1.1"
 "Host: x"; }
include  +glob "x/*.vcl";
import a as b from "c";
"#;
        let expected = r#"vcl 4.1;
backend a { .host = "127.0.0.1"; .port = "80"; }
backend b none;

backend c {
    .host = "c";
    .probe = { .url = "/"; .interval = 1s; }
    .probe_x = p;
    .timeout = 1.5s;
}

acl l +log -fold {
    "10.0.0.0"/8;
    ! "10.0.0.1";
    ("host"/24);
}

probe p {
    .request = "GET / HTTP/1.1"
        "Host: x";
}

include +glob "x/*.vcl";
import a as b from "c";
"#;
        assert_eq!(formatted(text), expected);
    }

    #[test]
    fn declarations_near_the_widest_line_are_formatted_once() {
        for length in 60..100 {
            let name = "z".repeat(length);
            formatted(&format!("vcl 4.1;\nbackend a{{.host=\"1\";.probe={{.url={name} \"/\";}}}}"));
            formatted(&format!("vcl 4.1;\nacl {name}{{!\"1\"/8;(\"a\");}}"));
            formatted(&format!("vcl 4.1;\nprobe p{{.url=\"{name}\";.interval=1 s;.timeout= 1.5s ;}}"));
        }
    }

    #[test]
    fn comments_and_blank_lines_are_kept() {
        let text = "\n\n# first \n\n\nvcl 4.1; // trailing\r\nbackend b none;\n# about the subroutine\nsub x{ # open\n\n\n# before\n\
                    set req.http.a = /* in */ \"b\";\n\n\n\n  /* several\n   * lines */\nset req.http.b = \"c\" # why\n+ \"d\";\n\n\
                    # last\n}\n# between\nsub y{if(true){}\n# no\nelse\n# odd\n{}\n/* same */ return;}# end\n#eof";
        let expected = "# first

vcl 4.1; // trailing
backend b none;

# about the subroutine
sub x { # open
    # before
    set req.http.a = /* in */ \"b\";

    /* several
     * lines */
    set req.http.b = \"c\" # why
        + \"d\";

    # last
}

# between
sub y {
    if (true) {}
    # no
    else
    # odd
    {}
    /* same */ return;
} # end
#eof
";
        assert_eq!(formatted(text), expected);
    }

    #[test]
    fn a_block_of_comments_ends_below_them() {
        let text = "vcl 4.1;\nbackend a none;\nsub vcl_recv {\n# one\n\n\n# two\n    }\n\
                    sub b { /* same */ }\nsub c { # end\n}\nsub d {\n/* a */ }\nsub e { if (a) {\n# f\n} }\n\
                    acl g {\n# h\n}\n";
        let expected = "vcl 4.1;
backend a none;

sub vcl_recv {
    # one

    # two
}

sub b { /* same */ }

sub c { # end
}

sub d {
    /* a */
}

sub e {
    if (a) {
        # f
    }
}

acl g {
    # h
}
";
        assert_eq!(formatted(text), expected);
        let packaged = include_str!("../../../../packaging/default.vcl");
        assert_eq!(formatted(packaged), packaged);
    }

    #[test]
    fn comments_on_one_line_are_read_once() {
        let text = format!("sub a {{{}}}", "/* b */".repeat(100_000));
        let begin = std::time::Instant::now();
        assert!(format("test.vcl", text.as_bytes()).is_ok());
        assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{:?}", begin.elapsed());
    }

    #[test]
    fn strings_and_line_breaks_in_expressions_are_kept() {
        let text = "sub a{synthetic({\"<p>\n  x\"}+\"\"\"a\"b\n\"\"\");if(a.b==1||\n(c&&\nd)){std.log(\n\"x\"\n,\ny=1\n);}\
                    return(synth(301,\"x\"));new d=directors.random();d.add_backend(b,1.0);return(vcl(x));}";
        let expected = "sub a {
    synthetic({\"<p>\n  x\"} + \"\"\"a\"b\n\"\"\");
    if (a.b == 1 ||
        (c &&
            d)) {
        std.log(
            \"x\",
            y=1
        );
    }
    return (synth(301, \"x\"));
    new d = directors.random();
    d.add_backend(b, 1.0);
    return (vcl(x));
}
";
        assert_eq!(formatted(text), expected);
    }

    #[test]
    fn a_text_that_does_not_parse_has_an_error() {
        for (text, expected) in [
            ("sub a { set x = ; }", "1:17"),
            ("sub a { set x = 1 }", "`;` is expected"),
            ("sub a { ", "end of the text"),
            ("} ", "declaration is expected"),
            ("sub a { if (x) return (pass); }", "`{` is expected"),
            ("sub a { set x = \"a\" \"b\"; }", "join strings with +"),
            ("sub a { return (pass) }", "`;`"),
            ("C{ int i; }C", "inline C"),
            ("sub a { C{ int i; }C }", "inline C"),
            ("sub a { set x = \"a\n\"; }", "Unterminated string"),
            ("backend a { .host \"x\"; }", "`=`"),
            ("acl a { x; }", "an address"),
            ("\u{e9}", "Syntax error"),
            ("sub a { error 404; }", "`(`"),
        ] {
            let shown = error(text);
            assert!(shown.contains(expected), "{text}\n{shown}");
        }
        let deep = format!("sub a {{ set x = {}1{}; }}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(error(&deep).contains("nest"));
        assert!(error(&"sub a ".repeat(3)).contains("expected"));
        assert!(error(&format!("sub a {}", "{".repeat(100_000))).contains("nest"));
    }

    #[test]
    fn texts_without_tokens_are_formatted() {
        assert_eq!(formatted(""), "");
        assert_eq!(formatted(" \n\n"), "");
        assert_eq!(formatted(" /* a\n\tb */\n\n\n# c"), "/* a\n       b */\n\n# c\n");
    }
}
