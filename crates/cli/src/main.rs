//! The binary `coppice`.

fn main() -> std::process::ExitCode {
    coppice_cli::entry::main()
}
