"""Small correct programs, into which tasks put mistakes. Each function is a program and needs no other function. The
module `calls` holds the arguments with which the programs are called."""
