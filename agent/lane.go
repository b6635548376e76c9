package agent

import (
	"context"
	"sync"

	"recibo/rest"
)

// lane is one pool of workers: its queue, how many there are, what permits the next one to start, and what it does.
type lane struct {
	queue   *queue
	workers int
	acquire func(context.Context) error
	cancel  func()
	work    func(context.Context, *transfer)
}

// reportLanes are the pools that reports go through.
func (a *Agent) reportLanes(workers int) []lane {
	if a.Reporter == nil {
		return nil
	}
	lanes := []lane{describeLane(a, workers), hintLane(a, workers)}
	if a.Folder != nil {
		lanes = append(lanes, downloadLane(a, a.Config.Workers))
	}
	return lanes
}

func describeLane(a *Agent, workers int) lane {
	return lane{
		queue: a.described, workers: workers, work: a.describe,
		acquire: func(ctx context.Context) error { return a.Reporter.Acquire(ctx, rest.Get) },
		cancel:  func() { a.Reporter.Cancel(rest.Get) },
	}
}

// hintLane settles what a list has just described: it asks nobody, so no gate and no pace holds it.
func hintLane(a *Agent, workers int) lane {
	return lane{
		queue: a.hinted, workers: workers, work: a.decide,
		acquire: func(context.Context) error { return nil }, cancel: func() {},
	}
}

func downloadLane(a *Agent, workers int) lane {
	return lane{
		queue: a.ready, workers: workers, work: a.bringHome,
		acquire: func(ctx context.Context) error {
			if err := a.waitFor(ctx, a.outlets[0]); err != nil {
				return err
			}
			return a.Reporter.Acquire(ctx, rest.Download)
		},
		cancel: func() { a.Reporter.Cancel(rest.Download) },
	}
}

// dispatch gives queued transfers to workers. It is the dispatcher that waits for gates and paces, never a worker; and
// it takes the most urgent transfer only once it may start.
func (a *Agent) dispatch(ctx, work context.Context, workers *sync.WaitGroup, l lane) {
	slots := make(chan struct{}, l.workers)
	for l.queue.wait(ctx) {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		if l.acquire(ctx) != nil {
			<-slots
			return // ctx ended
		}
		t := l.queue.pop()
		if t == nil {
			l.cancel()
			<-slots
			continue
		}
		workers.Go(func() {
			defer func() { <-slots }()
			l.work(work, t)
		})
	}
}
