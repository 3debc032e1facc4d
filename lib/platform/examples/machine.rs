//! Prints what the door knows about this machine.

fn main() {
    println!("{}", archipelago_platform::machine::Machine::detect());
}
