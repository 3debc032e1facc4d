//! Prints a summary of this machine.

fn main() {
    println!("{}", archipelago_platform::machine::Machine::detect());
}
