//! The same as `coppice`, under the name by which kubectl finds it: `kubectl coppice`.

fn main() -> std::process::ExitCode {
    coppice_cli::entry::main()
}
