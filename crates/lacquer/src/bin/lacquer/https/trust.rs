//! How the system is made to trust the authority for localhost.

use std::path::Path;

use lacquer_acme::local::LocalFiles;

/// Programs that add an authority to the system's trust store, and the command with `FILE` in the place of its
/// certificate: for Debian and Alpine, openSUSE and Arch and Fedora.
const TOOLS: [(&str, &str); 3] = [
    (
        "/usr/sbin/update-ca-certificates",
        "sudo install -m 644 FILE /usr/local/share/ca-certificates/lacquer-localhost.crt && sudo update-ca-certificates",
    ),
    ("/usr/bin/update-ca-trust", "sudo trust anchor FILE"),
    ("/usr/bin/trust", "sudo trust anchor FILE"),
];

/// Returns the command for this system.
fn command(authority: &str) -> String {
    let found = TOOLS.iter().find(|(program, _)| Path::new(program).exists());
    found.map_or(TOOLS[2].1, |(_, command)| command).replace("FILE", authority)
}

/// Returns what the user should know.
pub fn notes(files: &LocalFiles) -> String {
    let authority = files.authority.display().to_string();
    let made =
        if files.is_new { "A new authority of your own was made, which" } else { "Your own authority" };
    format!(
        "{made} signs certificates for localhost only: {authority}\n\
         To make this system trust it (once):\n  {}\n\
         To make Chrome and Firefox trust it, import that file in their settings for certificates.\n",
        command(&authority)
    )
}
