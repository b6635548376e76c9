package rest

import "context"

// Gate is the gate of a service that is not called through a Client, such as an object store through a library of its
// own. It is that of a Client's class: closed by the service's trouble, it lets one probe at a time through. All methods
// may be used concurrently.
type Gate struct {
	class Class
	gates *gates
}

// NewGate returns an open gate. Of the options it uses Log, Now, Jitter, ProbeBase and ProbeCap.
func NewGate(class Class, o Options) *Gate {
	return &Gate{class: class, gates: newGates(o.withDefaults(), class)}
}

// Acquire waits until the gate is open or the caller is the one probe of a closed gate. The caller then owes exactly one
// Do or one Cancel. It returns ctx.Err() as soon as ctx ends, and no other error. Callers wait here before they take a
// worker (law 8: a wait holds no worker).
func (g *Gate) Acquire(ctx context.Context) error { return g.gates.acquire(ctx, g.class) }

// Cancel gives an Acquire back that no Do will follow.
func (g *Gate) Cancel() { g.gates.cancel(g.class) }

// Status returns the state of the gate.
func (g *Gate) Status() GateStatus { return g.gates.status()[0] }

// Changed receives a value after the gate opened or closed; several changes may share one. It serves one receiver.
func (g *Gate) Changed() <-chan struct{} { return g.gates.changed }

// Do makes one call, after an Acquire, and returns its error. A nil error is contact; of any other, about says what it
// tells of the service: nothing with nil, as for the end of the context; otherwise what its Kind would in a Client:
// trouble where Error.Service, no contact where TooSlow, contact for the rest.
//
// A call that goes on for long after the service has answered as one that works calls answered at that moment: the gate
// opens, and of the call's end only trouble counts. While the service has asked to be left alone, a call without an
// Acquire is not made, and Do returns a Limited *Error.
func (g *Gate) Do(call func(answered func()) error, about func(error) *Error) error {
	permit, paused := g.gates.begin(g.class)
	if !paused.IsZero() {
		return waiting("", paused, false)
	}
	told := false
	err := call(func() {
		told, permit = true, g.gates.answered(g.class, permit)
	})
	end := g.verdict(err, about)
	if told && end.about != trouble {
		end = verdict{about: nothing} // the contact is old, and others may have met with trouble since
	}
	g.gates.settle(g.class, permit, end)
	return err
}

func (g *Gate) verdict(err error, about func(error) *Error) verdict {
	if err == nil {
		return verdict{about: contact}
	}
	e := about(err)
	if e == nil {
		return verdict{about: nothing}
	}
	return judge(nil, e, nil)
}
