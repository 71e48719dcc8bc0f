//! The groups of the processes, and the files that name them.

use std::fs;

use lacquer_testing::daemon::{Daemon, is_root};
use lacquer_testing::slots::shared_slot;
use lacquer_testing::{Folder, write_program};

const VCL: &str = "vcl 4.1; backend default none;";

/// Only root can change the user. The user is not one of the system: a program answers for it.
#[test]
fn the_processes_are_in_all_groups_of_their_users() {
    if !is_root() {
        return;
    }
    let _slot = shared_slot();
    let folder = Folder::new("identity-groups");
    let answers = "#!/bin/sh\n\
                   case \"$1 $3\" in\n\
                   \"passwd lacquer-both\") echo \"lacquer-both:x:65432:65433::/:/bin/false\" ;;\n\
                   \"initgroups lacquer-both\") echo \"lacquer-both          65433 65434 65435\" ;;\n\
                   *) exit 2 ;;\n\
                   esac\n";
    write_program(&folder.join("getent"), answers);
    let script = format!("PATH={}:$PATH; export PATH; exec \"$@\"", folder.join("").display());
    let options = ["-j", "unix,user=lacquer-both,workuser=lacquer-both"];
    let mut daemon = Daemon::start_jailed(VCL, &options, &script);
    for process in [daemon.manager(), daemon.worker()] {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).expect("a line");
        let groups: Vec<&str> = groups.split_whitespace().collect();
        assert_eq!(groups, ["65433", "65434", "65435"], "{status}");
    }
}

#[test]
fn relative_files_with_the_process_id_are_in_the_working_directory() {
    let _slot = shared_slot();
    let daemon = Daemon::start(VCL, &["-P", "lacquer-own.pid"]);
    let text = fs::read_to_string(daemon.directory().join("lacquer-own.pid")).expect("the file exists");
    assert_eq!(text.trim(), daemon.manager().to_string());
}
