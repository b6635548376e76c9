// Command recibo brings home the reports that Lerian's Reporter finishes, exactly once each.
package main

import (
	"os"

	"recibo/command"
)

func main() {
	os.Exit(command.Main(os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
