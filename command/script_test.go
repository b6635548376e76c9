package command_test

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"recibo/command"
)

// The scripts in testdata/script are the program as a user sees it: each runs the real command line as a process of its own,
// against a Hub, a Reporter and Fetchers that run in the test. upstream_test.go and job_upstream_test.go have the commands
// that drive those, in drive_test.go and job_drive_test.go are those that judge what came of it.

func TestMain(m *testing.M) {
	testscript.Main(withBroker{m}, map[string]func(){
		"recibo": func() { os.Exit(command.Main(os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr)) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Condition:           condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"upstream":   startUpstream,
			"report":     addReport,
			"complete":   completeReport,
			"regenerate": regenerateReport,
			"forget":     forgetReport,
			"event":      publishEvent,
			"fault":      orderFault,
			"down":       takeDown,
			"deny":       denyClasses,
			"revoke":     revokeTokens,
			"hub":        driveHub,

			"fetcher": startFetcher,
			"job":     runJob,
			"alter":   alterJob,
			"emit":    emitEvent,
			"object":  spoilObject,
			"outage":  takeFetcherDown,

			"exits":      exits,
			"eventually": eventually,
			"sigterm":    sigterm,
			"requests":   checkRequests,
			"sum":        checkSum,
			"damage":     damageFile,
			"newer":      makeNewer,
			"overwrite":  overwriteFile,
			"same":       sameBytes,
			"result":     checkResult,
			"stored":     checkStored,
			"mode":       checkMode,
			"asked":      checkAsked,
		},
	})
}

// noRaceSleep spares the second that a program built with the race detector otherwise sleeps at its end.
const noRaceSleep = "atexit_sleep_ms=0"

// setup gives each script ids to speak about. Its upstream starts when the script asks for it.
func setup(env *testscript.Env) error {
	u := &upstream{}
	env.Values[upstreamKey{}] = u
	env.Defer(u.close)
	addWorkers(env)
	env.Setenv("A", "aaaaaaaa-0000-7000-8000-000000000001")
	env.Setenv("B", "bbbbbbbb-0000-7000-8000-000000000002")
	env.Setenv("C", "cccccccc-0000-7000-8000-000000000003")
	env.Setenv("D", "dddddddd-0000-7000-8000-000000000004")
	env.Setenv("RECIBO_DOWNLOADS_MIN_FREE", "1MiB") // the machine that tests may have little
	env.Setenv("GORACE", noRaceSleep)
	return nil
}
