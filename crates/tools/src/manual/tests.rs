//! Texts with characters that mean something to a shell or to man(7) remain texts.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{Entry, Flag, Group, Program, Reference, Subcommand, bash, fish, man, zsh};
use super::{man_of_reference, page, page_of_reference};

fn flag(name: &'static str, value: &'static str, help: &str) -> Flag {
    Flag { name, value, help: help.to_owned() }
}

fn command(name: &'static str) -> Subcommand {
    Subcommand {
        name,
        operand: Some(("FILE...", "it's a file")),
        summary: "don't: `do` [it] \"now\" \\ $(x)",
        about: "First.\n.TH is not a request.\n\nSecond 'paragraph'.",
        options: vec![
            flag("listen", "ADDR", "an address: [::1]:80, it's"),
            flag("p", "A=B", ""),
            flag("all", "", "all"),
        ],
        examples: &[("lacquer run --listen '*'", ".serves")],
    }
}

fn program() -> Program {
    Program {
        name: "lacquer",
        version: "Lacquer 1".to_owned(),
        summary: "a cache",
        about: "About.",
        commands: vec![command("run"), command("check"), command("storage create"), command("storage check")],
        groups: Vec::new(),
        see_also: &["lacquerd(1)"],
    }
}

fn daemon() -> Program {
    let groups = vec![(
        "Basic options",
        vec![flag("a", "[name=]address", "where\nto [listen]"), flag("?", "", "help")],
    )];
    Program { name: "lacquerd", groups, commands: Vec::new(), ..program() }
}

/// Returns what a shell prints for a script, or nothing if the shell is not installed.
fn shell(name: &str, script: &str) -> Option<String> {
    let mut child = Command::new(name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(script.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}\n{script}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn bash_completes_commands_and_options() {
    let completion = bash(&program());
    for (words, expected) in [
        ("lacquer ''", "run check storage"),
        ("lacquer s", "storage"),
        ("lacquer storage ''", "create check"),
        ("lacquer storage cr", "create"),
        ("lacquer storage create --", "--listen --all --help"),
        ("lacquer run --l", "--listen"),
        ("lacquer run x --a", "--all"),
        ("lacquer run x", ""),
        ("lacquer unknown --", ""),
    ] {
        let script = format!(
            "{completion}COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _lacquer; echo \"${{COMPREPLY[*]}}\"\n"
        );
        if let Some(found) = shell("bash", &script) {
            assert_eq!(found.trim(), expected, "{words}");
        }
    }
    shell("bash", &bash(&daemon()));
}

#[test]
fn other_shells_accept_their_completions() {
    for program in [program(), daemon()] {
        let zsh = zsh(&program);
        assert!(zsh.starts_with(&format!("#compdef {}\n", program.name)));
        shell("zsh", &format!("_arguments() {{ }}\n_describe() {{ }}\n{zsh}"));
        shell("fish", &fish(&program));
    }
    assert!(fish(&program()).contains(
        "-n '__fish_seen_subcommand_from storage; and __fish_seen_subcommand_from create' -l listen -r"
    ));
}

#[test]
fn pages_contain_no_unintended_requests() {
    for page in [man(&program()), man(&daemon())] {
        let requests = page.lines().filter(|line| line.starts_with(['.', '\'']));
        for request in requests {
            let word = request.split_whitespace().next().unwrap_or_default();
            assert!([".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".br"].contains(&word), "{request}");
        }
        assert_eq!(page.lines().filter(|line| line.starts_with(".TH ")).count(), 1);
        assert!(page.contains("\\fB\\-"), "{page}");
    }
    assert!(man(&program()).contains(".SS \"lacquer storage create [options] FILE...\"\n"));
}

fn reference() -> Reference {
    let entry = Entry {
        name: "ban <field> [-x]".to_owned(),
        facts: vec!["default `*`".to_owned()],
        text: ".First *line* of a_name <b>.\n\n- `-x`: 'second'".to_owned(),
    };
    let group =
        Group { title: "All \"names\"".to_owned(), about: "About `x`.".to_owned(), entries: vec![entry] };
    Reference {
        name: "lacquer-x",
        title: "Names",
        version: "Lacquer 1".to_owned(),
        summary: "names",
        about: "First.\n\nSecond.".to_owned(),
        groups: vec![group],
        see_also: &["lacquer(1)"],
    }
}

#[test]
fn a_reference_is_a_manual_page_and_a_page_of_the_book() {
    let man = man_of_reference(&reference());
    for part in [
        ".TH LACQUER-X 7 ",
        ".PP\nFirst.\n.PP\nSecond.\n.SH \"ALL \\(dqNAMES\\(dq\"\n.PP\nAbout \\fBx\\fR.\n",
        ".TP\n.B ban <field> [\\-x]\ndefault \\fB*\\fR\n.br\n\\&.First *line* of a_name <b>.\n.br\n\\- \\fB\\-x\\fR: \\(aqsecond\\(aq\n",
        ".SH \"SEE ALSO\"\n\\fBlacquer(1)\\fR\n",
    ] {
        assert!(man.contains(part), "{part}\n{man}");
    }
    let book = page_of_reference(&reference());
    for part in [
        "# Names\n\nFirst.\n\nSecond.\n\n## All \"names\"\n\nAbout `x`.\n\n### `ban <field> [-x]`\n\n*default `*`.*\n",
        "\n.First \\*line\\* of a_name \\<b\\>.\n\n- `-x`: 'second'\n",
    ] {
        assert!(book.contains(part), "{part}\n{book}");
    }
    let program = page(&program());
    for part in [
        "## lacquer run\n\n    lacquer run [options] FILE...\n",
        "| `--listen ADDR` | an address: \\[::1\\]:80, it's |",
    ] {
        assert!(program.contains(part), "{part}\n{program}");
    }
}
