//! The words of management commands that remove objects from the cache.

use crate::fault::Fault;
use crate::request::Target;

/// Returns the page of a URL that a user gives, to remove it. A URL that was copied from the log may be escaped there, or
/// contain a fragment: it would match no page, or another one.
pub fn page(url: &str) -> Result<Target, Fault> {
    if url.contains(['#', '\\']) {
        return Err(Fault::new(
            "the URL has a fragment, or escapes as in the log",
            "give it as clients request it, or a pattern",
        ));
    }
    Target::parse(url)
}

/// Returns the words of the ban of one page: all variants, for its host or for every host.
pub fn page_ban(target: &Target) -> Vec<String> {
    ban(&target.host, "==", &target.path)
}

/// Returns the words of the ban of all pages whose URL matches a regular expression, for a host or for every host.
pub fn pattern_ban(host: &str, pattern: &str) -> Vec<String> {
    ban(host, "~", pattern)
}

fn ban(host: &str, operator: &str, url: &str) -> Vec<String> {
    let mut words = Vec::new();
    // The built-in VCL writes hosts in lower case, but another VCL may leave them as clients write them.
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        words.extend(["req.http.host", "~", &any_case(host), "&&"].map(str::to_owned));
    } else if !host.is_empty() {
        words.extend(["req.http.host", "==", host, "&&"].map(str::to_owned));
    }
    words.extend(["req.url", operator, url].map(str::to_owned));
    words
}

/// Returns the regular expression of a host in capitals or not.
fn any_case(host: &str) -> String {
    let mut pattern = "(?i)^".to_owned();
    for c in host.chars() {
        if !c.is_alphanumeric() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('$');
    pattern
}

/// Splits an expression at spaces, except between double quotes.
pub fn split(expression: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut chars = expression.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if is_quoted && matches!(chars.peek(), Some('"' | '\\')) => {
                word.get_or_insert_default().extend(chars.next());
            }
            c if c.is_whitespace() && !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_match_no_page_or_another_one_are_refused() {
        for url in ["/a#b", "http://h/\\xff"] {
            assert!(page(url).is_err_and(|fault| fault.what.contains("as in the log")), "{url}");
        }
        assert_eq!(page("http://h/a?b").map(|page| page.path).as_deref(), Ok("/a?b"));
    }

    #[test]
    fn quoted_values_are_one_word() {
        assert_eq!(
            split("req.url ~ ^/a\\.b && obj.http.x == \"a \\\" b\""),
            ["req.url", "~", "^/a\\.b", "&&", "obj.http.x", "==", "a \" b"]
        );
        assert_eq!(split("  "), Vec::<String>::new());
        assert_eq!(split("a \"\""), ["a", ""]);
        let target = Target::parse("http://a.example/b").expect("a URL");
        assert_eq!(page_ban(&target).join(" "), "req.http.host == a.example && req.url == /b");
        let target = Target::parse("http://A.example:80/b").expect("a URL");
        assert_eq!(page_ban(&target).join(" "), r"req.http.host ~ (?i)^A\.example\:80$ && req.url == /b");
        assert_eq!(pattern_ban("", "^/a b").join("|"), "req.url|~|^/a b");
    }
}
