//! The interface between compiled VCL, the modules it imports and the transaction that runs it.
