//! The dashboard: one page without outside resources. Its style and its script are the only ones that its policy allows.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::reply::Reply;

const HTML: &str = include_str!("page/dashboard.html");
const STYLE: &str = include_str!("page/dashboard.css");
const SCRIPT: &str = include_str!("page/dashboard.js");

/// The page, and the policy with the digests of its parts.
#[derive(Debug)]
pub struct Page {
    html: Bytes,
    policy: String,
}

impl Page {
    pub fn new() -> Page {
        let digest = |part: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(part.as_bytes())));
        let html = HTML.replacen("/* STYLE */", STYLE, 1).replacen("/* SCRIPT */", SCRIPT, 1);
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
            digest(SCRIPT),
            digest(STYLE)
        );
        Page { html: html.into(), policy }
    }

    pub fn reply(&self) -> Reply {
        Reply::new(200, "text/html; charset=utf-8", self.html.clone())
            .with("content-security-policy", &self.policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_inserts_nothing_as_markup() {
        let page = Page::new();
        assert!(page.html.len() < 150_000, "{}", page.html.len());
        let text = std::str::from_utf8(&page.html).expect("text");
        for part in [STYLE, SCRIPT] {
            assert_eq!(text.matches(part).count(), 1);
        }
        for dangerous in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "Function(",
            "http://",
            "https://",
            "style=\"",
            " onclick=",
        ] {
            let has = text.matches(dangerous).count();
            assert!(has == 0 || dangerous.starts_with("http") && has <= 2, "{dangerous}: {has}");
        }
        assert!(text.contains("<html lang=\"en\">") && !page.policy.contains("unsafe"));
    }
}
