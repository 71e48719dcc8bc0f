//! Whole, malformed and hostile files.

use super::*;

/// Returns the mistakes of a file, each with its line.
fn all_wrong(bytes: &[u8]) -> Vec<(u32, String)> {
    let Contents { settings, mut mistakes } = read(bytes);
    mistakes.extend(site(&settings).1);
    let all = diagnostics(&mut mistakes, FILE, bytes);
    all.iter().map(|one| (one.line().expect("it has a line"), one.pretty())).collect()
}

/// Returns the first mistake of a file.
fn wrong(bytes: &[u8]) -> (u32, String) {
    all_wrong(bytes).into_iter().next().expect("it has a mistake")
}

#[test]
fn a_whole_file_is_read() {
    let text = "# a site\nbackend = [\"http://a\", 'b:1']\nlisten = \":80\"\nignore-cookies = true\ncompress = false\n\
                cache = [\n  \"*.jpg=1d\", # images\n  'type:text/html=60s',\n]\n[param]\ndefault_ttl = 60\nhttp_gzip_support = \
                true\nping_interval = 1.5\n";
    let Contents { settings, mistakes } = read(text.as_bytes());
    assert_eq!(mistakes, []);
    let all: Vec<_> = settings.iter().map(|s| (s.name, s.value.as_str())).collect();
    let expected = [
        ("backend", "http://a"),
        ("backend", "b:1"),
        ("listen", ":80"),
        ("ignore-cookies", ""),
        ("cache", "*.jpg=1d"),
        ("cache", "type:text/html=60s"),
        ("p", "default_ttl=60"),
        ("p", "http_gzip_support=on"),
        ("p", "ping_interval=1.5"),
    ];
    assert_eq!(all, expected);
    assert_eq!(site(&settings).1, []);
    assert_eq!(read(b""), Contents::default());
}

#[test]
fn malformed_files_have_a_line_and_a_hint() {
    let table: [(&[u8], u32, &str); 21] = [
        (b"\n\nbakend = \"x\"\n", 3, "did you mean `backend`?"),
        (b"zzzzz = 1\n", 1, "the names are listen, https"),
        (b"listen = 80\n", 1, "write a text or a list of texts: listen"),
        (b"listen = [\n \":80\",\n 81]\n", 3, "write a text or a list"),
        (b"compress = \"yes\"\n", 1, "compress = true or compress = false"),
        (b"ignore-cookies = 1\n", 1, "ignore-cookies = true, or a list"),
        (b"stale = [\"1h\"]\n", 1, "write a text: stale"),
        (b"stale = \"1 fortnight\"\n", 1, "such as 30s"),
        (b"\ncache = [\n\"*.jpg=1d\",\n\"x=1d\"]\n", 4, "begins with / or *"),
        (b"cache = \"/(/=1d\"\n", 1, "not a regular expression"),
        (b"except = \"\"\"/a\nb\"\"\"\n", 1, "line break"),
        (b"tags = \"xkey\"\n", 1, "--purge-from 127.0.0.1"),
        (b"purge-from = \"10.1.2.3/8\"\n", 1, "more bits"),
        (b"param = 1\n", 1, "below [param]"),
        (b"[param]\n\"a b\" = 1\n", 2, "not the name of a parameter"),
        (b"[param]\na = [1]\n", 2, "`a` has a wrong value"),
        (b"[backend]\nhost = \"a\"\n", 1, "write a text or a list"),
        (b"listen = \"a\nx", 1, "see docs/run.md"),
        (b"listen = \":80\"\nlisten = \":81\"\n", 2, "see docs/run.md"),
        (b"a\xff", 1, "UTF-8"),
        (b"\0", 1, "see docs/run.md"),
    ];
    for (bytes, line, text) in table {
        let shown = String::from_utf8_lossy(bytes);
        let (found, pretty) = wrong(bytes);
        assert_eq!(found, line, "{shown}: {pretty}");
        assert!(pretty.contains(text) && pretty.contains("lacquer.toml:"), "{shown}: {pretty}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_found_in_their_order() {
    let text = b"stale = \"soon\"\nbakend = \"x\"\ncache = [\"x=1d\", 5, \"/a=1\"]\nlisten 80\n\
                 purge-from = \"10.0.0.0/64\"\n[param]\n\"a b\" = 1\n";
    let lines: Vec<u32> = all_wrong(text).iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 2, 3, 3, 3, 4, 5, 7], "{:#?}", all_wrong(text));
    let many: Vec<String> = (0..500).map(|number| format!("x{number} = 1")).collect();
    assert_eq!(all_wrong(many.join("\n").as_bytes()).len(), MAX_MISTAKES);
}

#[test]
fn deep_and_long_files_end() {
    for text in [
        "[".repeat(100_000),
        format!("a = {}", "[".repeat(100_000)),
        "a.".repeat(100_000),
        "é".repeat(600_000),
    ] {
        let (line, pretty) = wrong(text.as_bytes());
        assert!(line == 1 && pretty.len() < 2_000_000);
    }
}
