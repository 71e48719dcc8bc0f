//! The requests of the admin listener, up to the parameters of its routes: no input makes it fail, and the words of an
//! expression are its own. Zero bytes separate method, path, query, body and `Accept`.
#![no_main]

use lacquer_inspect::invalidation::split;
use libfuzzer_sys::fuzz_target;

/// Writes words so that they are split again, each one quoted.
fn quoted(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")));
    quoted.collect::<Vec<_>>().join(" ")
}

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(5, |&byte| byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (method, path, query, body) = (next(), next(), next(), next());
    let [method, path, query, accept] = [method, path, query, next()].map(String::from_utf8_lossy);
    lacquer_admin::fuzzing::request(&method, &path, &query, body, &accept);
    let words = split(&String::from_utf8_lossy(body));
    assert_eq!(split(&quoted(&words)), words);
});
