//! Invalid requests of the operator are refused: the daemon does not start and prints the reason in one line, and a
//! running daemon does not change.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Output};

use lacquer_testing::Folder;
use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, is_root, program, vcl};
use lacquer_testing::origin::{Origin, sized};

/// Arguments, and a text that the only line on standard error contains.
const ARGUMENTS: [(&[&str], &str); 20] = [
    (&[], "Neither -b nor -f given"),
    (&["-b", "127.0.0.1:1", "-f", "x"], "Only one of -b or -f"),
    (&["-b", "127.0.0.1:1", "surplus"], "Too many arguments (surplus"),
    (&["-f", "/nowhere/site.vcl"], "Cannot read -f file '/nowhere/site.vcl' (No such file or directory)"),
    (&["-f", "nowhere.vcl"], "in /etc/varnish"),
    (&["-b", "127.0.0.1:1", "-p", "nope=1"], "Unknown parameter \"nope\""),
    (&["-b", "127.0.0.1:1", "-p", "thread_pool_maxx=9"], "Did you mean \"thread_pool_max\"?"),
    (&["-b", "127.0.0.1:1", "-p", "default_ttl"], "-p lacks '='"),
    (&["-b", "127.0.0.1:1", "-p", "default_ttl=x"], "'default_ttl' to 'x'"),
    (&["-b", "127.0.0.1:1", "-t", "x"], "'default_ttl' to 'x'"),
    (&["-b", "127.0.0.1:1", "-p", "vsl_space=1k"], "Must be at least 1M"),
    (&["-b", "127.0.0.1:1", "-s", "malloc,1k"], "too small"),
    (&["-b", "127.0.0.1:1", "-s", "tape"], "Unknown stevedore method \"tape\""),
    (&["-b", "127.0.0.1:1", "-a", "127.0.0.1:99999"], "127.0.0.1:99999"),
    (&["-b", "127.0.0.1:1", "-j", "nope"], "Unknown jail method \"nope\""),
    (&["-b", "127.0.0.1:1", "-n", "/dev/null/dir"], "Cannot create working directory '/dev/null/dir'"),
    (&["-b", "127.0.0.1:1", "-S", "/nowhere"], "Cannot open -S file (/nowhere)"),
    (&["-b", "127.0.0.1:1", "-I", "/nowhere"], "Can't open /nowhere"),
    (&["-b", "127.0.0.1:1", "-P", "/nowhere/pid"], "Could not open pid-file (/nowhere/pid)"),
    (&["-b", "127.0.0.1:1", "-r", "nope"], "Unknown parameter nope"),
];

/// Returns a command that runs the daemon with these arguments.
fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["-F", "-n"]).arg(folder.join("name")).args(arguments);
    command
}

/// Runs the daemon with these arguments until it exits. Returns its output.
fn start(folder: &Folder, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("it can be started")
}

/// Returns a description unless the output is exit code 2 and one line with `text`, with or without a hint at `-?`.
fn fault_of(output: &Output, text: &str) -> Option<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().filter(|l| *l != "(-? gives usage)" && !l.is_empty()).collect();
    let clear = lines.len() == 1 && lines[0].starts_with("Error: ") && lines[0].contains(text);
    (!clear || output.status.code() != Some(2)).then(|| format!("{text}: {} {stderr:?}", output.status))
}

/// Listeners of one name have one group of settings: no listener takes clients that its own settings would refuse.
#[test]
fn a_name_stands_for_one_group_of_tls_settings() {
    let folder = Folder::new("refused-names");
    let path = |name: &str| folder.join(name).display().to_string();
    let authority = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).expect("a certificate");
    fs::write(path("ca.pem"), authority.cert.pem()).expect("a file");
    fs::write(path("tls.conf"), "frontend = \"127.0.0.1:0\"\n").expect("a file");
    let plain = |name: &str| format!("{name}127.0.0.1:0,https");
    let strict = |name: &str| {
        format!("{name}127.0.0.1:0,https,client-verify=required,client-verify-ca={}", path("ca.pem"))
    };
    for (options, name) in [
        (["-a", &plain("web="), "-a", &strict("web=")], "web"),
        (["-a", &strict("web="), "-a", &plain("web=")], "web"),
        (["-a", &plain("a0="), "-a", &strict("")], "a0"),
        (["-A", &path("tls.conf"), "-a", &strict("tls0=")], "tls0"),
    ] {
        let output = start(&folder, &[&["-b", "127.0.0.1:1"], &options[..]].concat());
        let text = format!("two listeners are named {name} and have different settings of TLS");
        assert_eq!(fault_of(&output, &text), None);
    }
    let origin = Origin::start(sized);
    let mut same = Daemon::start(&vcl(origin.address, ""), &["-a", &strict("web="), "-a", &strict("web=")]);
    same.ok("ping");
}

/// A mistake in a file of `-A` is reported with the file, the line and the setting.
#[test]
fn mistakes_in_a_file_of_tls_name_the_setting() {
    let folder = Folder::new("refused-tls");
    let file = folder.join("tls.conf");
    let path = file.to_str().expect("a text");
    let frontend = "frontend = {\n  host = \"127.0.0.1\"\n  port = \"0\"\n";
    for (text, line, words) in [
        (
            format!("{frontend}  h3 = udp\n}}"),
            4,
            "Parsing error in line 4: h3: expected on or off, found 'udp'",
        ),
        (format!("{frontend}  prot = x\n}}"), 4, "Parsing error in line 4: expected one of host, port, "),
        (format!("{frontend}}}\nciphers = \"NOPE\""), 5, "line 5: ciphers: Invalid cipher list: NOPE"),
        (format!("{frontend}}}\npem-file = \"/nowhere.pem\""), 5, "pem-file: "),
        (format!("\n{frontend}  client-verify = required\n}}"), 2, "frontend: client-verify needs"),
        ("\nfrontend = \"127.0.0.1:99999\"".to_owned(), 2, "frontend: "),
        ("frontend = { host = \"/run/x\" h3 = on }".to_owned(), 1, "frontend: h3 requires an IP address"),
    ] {
        fs::write(&file, &text).expect("writable");
        let output = start(&folder, &["-b", "127.0.0.1:1", "-A", path]);
        for part in [words, &format!("({path}:{line})")] {
            assert_eq!(fault_of(&output, part), None, "{text}");
        }
    }
}

/// A listener that can serve nobody is reported, with the commands that change it.
#[test]
fn a_listener_without_certificates_is_reported() {
    let origin = Origin::start(sized);
    let options = ["-a", "secure=127.0.0.1:0,https"];
    let daemon = Daemon::start(&vcl(origin.address, ""), &options);
    let text = daemon.stderr();
    assert!(text.contains("Listener secure has no certificate: all its TLS handshakes fail"), "{text}");
    assert!(text.contains("tls.cert.load FILE` and `lacquer cli -n "), "{text}");
    drop(daemon);
    let plain = Daemon::start(&vcl(origin.address, ""), &[]);
    assert!(!plain.stderr().contains("certificate"), "{}", plain.stderr());
}

/// The text of an error is that of Varnish, and the hint of `lacquer check` follows it.
#[test]
fn errors_of_a_vcl_end_with_hints() {
    let folder = Folder::new("refused-vcl");
    let file = folder.join("site.vcl");
    fs::write(&file, "vcl 4.1;\nimport curl;\nbackend default none;\n").expect("writable");
    let file = file.to_str().expect("a text");
    let (plain, hint) =
        ("Could not find VMOD curl\n", "\nHint: there is no module curl here; import reqwest");
    let is_explained = |text: &str| {
        let (at, hint_at) = (text.find(plain), text.find(hint));
        at.is_some() && at < hint_at && text.contains("VCL compilation failed\nHint:")
    };
    let checked = Command::new(program()).args(["-C", "-f", file]).output().expect("it can be started");
    for output in [checked, start(&folder, &["-f", file])] {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && is_explained(&stderr), "{stderr:?}");
    }
    let mut daemon = Daemon::start("vcl 4.1; backend default none;", &[]);
    let (status, text) = daemon.cli(&format!("vcl.load other {file}"));
    assert!(status == 106 && is_explained(&text), "{status} {text:?}");
}

#[test]
fn wrong_arguments_are_reported_in_one_line() {
    let folder = Folder::new("refused-arguments");
    let faults: Vec<_> =
        ARGUMENTS.iter().filter_map(|(arguments, text)| fault_of(&start(&folder, arguments), text)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(!folder.join("name").exists());
    let unknown = start(&folder, &["--nope"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&unknown.stderr).lines().count(), 1);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("-? lists the options"));
    assert_eq!(String::from_utf8_lossy(&unknown.stdout), "");
}

/// Nothing that a start has made remains if it fails, and all that was there before does.
#[test]
fn a_start_that_fails_leaves_no_files() {
    let folder = Folder::new("refused-files");
    let path = |name: &str| folder.join(name).display().to_string();
    let faulty = folder.join("faulty.vcl");
    fs::write(&faulty, "vcl 4.1;").expect("writable");
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let taken = taken.local_addr().expect("it is bound").to_string();
    let refused = "127.0.0.1:0,token=/nowhere";
    let files = [
        ["-s", &format!("file,{},1M", path("memory"))],
        ["-s", &format!("store=disk,{},size=16M", path("store"))],
        ["-a", &path("socket")],
        ["-P", &path("pid")],
    ];
    let list = || {
        let entries = fs::read_dir(&*folder).expect("it exists").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let kept = folder.join("name/kept");
    for before in [&["faulty.vcl"][..], &["faulty.vcl", "name"]] {
        for wrong in [
            &["-f", &path("faulty.vcl")][..],
            &["-b", "none", "-T", &taken],
            &["-b", "none", "-w", refused],
            &["-b", "none", "-w", &path("web"), "-w", refused],
            &["-b", "none", "-P", "/nowhere/pid"],
            &["-b", "none", "-s", "tape"],
        ] {
            let arguments = [files.concat(), wrong.to_vec()].concat();
            let output = start(&folder, &arguments);
            assert_eq!(output.status.code(), Some(2), "{wrong:?}");
            assert_eq!(list(), before, "{wrong:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        assert!(!kept.exists() || fs::read_dir(folder.join("name")).is_ok_and(|all| all.count() == 1));
        fs::create_dir_all(folder.join("name")).expect("writable");
        fs::write(&kept, "").expect("writable");
    }
}

/// `lacquer run` has checked the directory before, but another user may have created it since. Only root can give a directory
/// to another user.
#[test]
fn a_directory_of_lacquer_run_that_another_user_has_created_is_refused() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("refused-owner");
    let name = folder.join("name");
    folder.file("name/theirs", "");
    chown(&name, Some(4711), None).expect("root may do that");
    // A start that uses the directory fails later.
    let mut run = command(&folder, &["-b", "none", "-P", "/nowhere/pid"]);
    let output = run.env("LACQUER_OWN_FOLDER", &name).output().expect("it can be started");
    assert_eq!(fault_of(&output, "it belongs to user 4711, who may have replaced it"), None);
    let left = fs::read_dir(&name).expect("it is there").flatten().map(|entry| entry.file_name());
    assert!(left.eq(["theirs"]), "something was written");
    assert_eq!(fs::metadata(&name).map(|found| found.uid()).ok(), Some(4711));
}

#[test]
fn unavailable_resources_are_reported_in_one_line() {
    let folder = Folder::new("refused-taken");
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let listen = start(&folder, &["-b", "127.0.0.1:1", "-a", &address]);
    let manage = start(&folder, &["-b", "127.0.0.1:1", "-a", "127.0.0.1:0", "-T", &address]);
    let mut faults: Vec<_> =
        [listen, manage].iter().filter_map(|output| fault_of(output, &address)).collect();
    // The mode of a directory does not restrict the superuser.
    if !rustix::process::geteuid().is_root() {
        let closed = folder.join("closed");
        fs::create_dir(&closed).expect("it can be created");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).expect("it is ours");
        let inside = closed.join("name").display().to_string();
        faults.extend(fault_of(&start(&folder, &["-b", "127.0.0.1:1", "-n", &inside]), "Permission denied"));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_faulty_vcl_does_not_start() {
    let folder = Folder::new("refused-vcl");
    let file = folder.join("faulty.vcl");
    fs::write(&file, "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { set req.nope = 1; }\n")
        .expect("the folder is ours");
    let output = start(&folder, &["-a", "127.0.0.1:0", "-f", &file.display().to_string()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("faulty.vcl' Line 3 Pos 20") && stderr.contains("----"), "{stderr}");
}

#[test]
fn a_faulty_vcl_leaves_the_old_one_active() {
    let origin = Origin::start(sized);
    let subs = "sub vcl_deliver { set resp.http.version = \"old\"; }";
    let mut daemon = Daemon::start(&vcl(origin.address, subs), &["-s", "malloc,32M"]);
    let worker = daemon.worker();
    let version = |address: SocketAddr| {
        let response = get(address, "/100/kept/a").expect("the daemon responds");
        response.header("version").unwrap_or_default().to_owned()
    };
    assert_eq!(version(daemon.address), "old");
    for faulty in ["vcl 4.1; backend b none; sub vcl_recv { set req.nope = 1; }", "vcl 4.1;", "", "\0\u{7f}"]
    {
        let (status, text) = daemon.cli(&format!("vcl.inline next << %%\n{faulty}\n%%"));
        assert_eq!(status, 106, "{faulty}: {text}");
        assert!(!text.trim().is_empty(), "{faulty}");
    }
    assert_eq!(daemon.cli("vcl.use next").0, 106);
    assert_eq!((version(daemon.address).as_str(), daemon.worker()), ("old", worker));
    for (command, status) in [
        ("param.set default_ttl x", 106),
        ("param.set nope 1", 106),
        ("vcl.discard boot", 300),
        ("nope", 101),
        ("vcl.load next", 104),
        ("vcl.load next a b c", 105),
        ("vcl.load \"next", 100),
    ] {
        let (found, text) = daemon.cli(command);
        assert_eq!(found, status, "{command}: {text}");
    }
    assert_eq!((version(daemon.address).as_str(), daemon.worker()), ("old", worker));
}
