//! Formatting of the VCL of test cases, with the programs that need no modules. `crates/lacquer/tests/tools` repeats it
//! with all modules.

mod corpus;

use lacquer_vcl::NoModules;

#[test]
fn formatting_does_not_change_programs() {
    assert!(corpus::check_all(&NoModules) > 30);
}
