//! Checked VCL programs to machine code, by Cranelift.
