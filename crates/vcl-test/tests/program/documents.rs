//! The examples of the documentation work. A block `test` of a page tests the last block `vcl` or `toml` before it.

use std::fs;
use std::path::{Path, PathBuf};

use lacquer_testing::Folder;
use lacquer_tools::settings;
use lacquer_vcl::{NoFiles, Options, compile};

use super::run_in;

/// A block of a page: its language and its text.
type Block<'a> = (&'a str, String);

#[test]
fn examples_pass_their_tests() {
    let mut faults = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("pages are UTF-8");
        let mut program = None;
        for (language, block) in blocks(&text) {
            match language {
                "vcl" => program = Some((block, Vec::new())),
                "toml" => program = Some(site(&block)),
                "test" => {
                    let name = page.file_stem().unwrap_or_default().to_string_lossy();
                    let (vcl, params) = program.as_ref().expect("an example precedes its test");
                    faults.extend(fault(&name, vcl, params, &block));
                    count += 1;
                }
                _ => {}
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(count >= 13, "{count} tests");
}

/// Runs the tests of an example. Returns the output if one fails, or if the VCL is not written as `lacquer fmt` does.
fn fault(name: &str, vcl: &str, params: &[String], test: &str) -> Option<String> {
    let folder = Folder::new(&format!("vcl-test-document-{name}"));
    folder.file("site.vcl", vcl);
    folder.file("site.test", test);
    let words: Vec<&str> = params.iter().flat_map(|param| ["-p", param]).chain(["site.vcl"]).collect();
    let ran = run_in(&folder, &words);
    if ran.code != Some(0) {
        return Some(format!("{name}:\n{}{}", ran.out, ran.err));
    }
    let options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &lacquer_tools::Offline);
    let lints = compile(name, vcl.as_bytes(), &options).map(|compiled| compiled.warnings.len());
    let formatted = lacquer_tools::format(name, vcl.as_bytes()).unwrap_or_default();
    (lints != Ok(0) || formatted != vcl.as_bytes()).then(|| {
        format!("{name}: {lints:?} warnings; lacquer fmt writes\n{}", String::from_utf8_lossy(&formatted))
    })
}

/// Returns the VCL that `lacquer run` makes of a `lacquer.toml`, and the parameters of the daemon.
fn site(toml: &str) -> (String, Vec<String>) {
    let settings::Contents { settings, mistakes } = settings::read(toml.as_bytes());
    let (mut site, wrong) = settings::site(&settings);
    assert!(mistakes.is_empty() && wrong.is_empty(), "{mistakes:?} {wrong:?}\n{toml}");
    let mut params = vec!["feature=+rfc9111".to_owned(), "stale_if_error=1h".to_owned()];
    for setting in settings {
        match setting.name {
            "backend" => {
                site.add_backend(setting.value.trim_start_matches("http://")).expect("it is an address");
            }
            "p" => params.push(setting.value),
            _ => {}
        }
    }
    let vcl = format!("vcl 4.1;\n\n{}", site.vcl());
    let formatted = lacquer_tools::format("site", vcl.as_bytes()).expect("it is correct");
    (String::from_utf8(formatted).expect("it is text"), params)
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(language) if !is_inside => {
                is_inside = true;
                blocks.push((language, String::new()));
            }
            Some(_) => is_inside = false,
            None => {
                if let Some((_, text)) = blocks.last_mut().filter(|_| is_inside) {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    blocks
}

/// Returns the pages with examples.
fn pages() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut pages = vec![docs.join("error-pages.md")];
    for folder in ["recipes", "migrate"] {
        let entries = fs::read_dir(docs.join(folder)).expect("the folder exists");
        pages.extend(entries.flatten().map(|entry| entry.path()));
    }
    pages.sort();
    pages
}

/// Faults of origins, with the cause that the page about troubleshooting explains.
const FAULTS: [(&str, &str); 6] = [
    ("origin refuses", "errno 111 (Connection refused)"),
    ("origin hangs", "first byte timeout"),
    ("origin closes", "HTC eof (Unexpected end of input)"),
    ("origin 200\n  size 100k\n  cut", "straight insufficient bytes"),
    ("origin 200\n  size 100k\n  chunked\n  cut", "chunked insufficient bytes"),
    ("backend b sick", "unhealthy ("),
];

#[test]
fn troubleshooting_names_the_causes_that_the_engine_logs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/troubleshooting.md");
    let page = fs::read_to_string(page).expect("readable");
    let folder = Folder::new("vcl-test-faults");
    let whole = "sub vcl_backend_response { set beresp.do_stream = false; }";
    folder.file("site.vcl", format!("vcl 4.1;\nbackend b {{ .host = \"192.0.2.1\"; }}\n{whole}\n"));
    // The expectation is wrong, so that the reason is printed.
    let tests = FAULTS.iter().enumerate();
    let tests = tests.map(|(at, (fault, _))| format!("test \"{at}\"\n {fault}\n GET /\n expect 418\n"));
    folder.file("site.test", tests.collect::<String>());
    let ran = run_in(&folder, &["site.vcl"]);
    // Long lines are wrapped.
    let words: Vec<&str> = ran.out.split_whitespace().collect();
    let printed = words.join(" ");
    for (fault, cause) in FAULTS {
        assert!(printed.contains(cause), "{fault}: {}{}", ran.out, ran.err);
        assert!(page.contains(cause), "{cause}");
    }
}
