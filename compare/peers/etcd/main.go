// Locks of Go's etcd package `concurrency`, measured like the others: jobs as lines of JSON on stdin, answers on stdout.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"golang.org/x/sys/unix"
)

// Longer than any measurement, in seconds.
const ttl = 600

var lines = bufio.NewScanner(os.Stdin)

type job struct {
	What    string `json:"what"`
	Ports   []int  `json:"ports"`
	Name    string `json:"name"`
	Workers int    `json:"workers"`
	Millis  int64  `json:"millis"`
}

type answer map[string]interface{}

func say(value answer) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// gate says that the job is prepared, and waits for the word.
func gate() error {
	say(answer{"ready": true})
	if !lines.Scan() || strings.TrimSpace(lines.Text()) != "go" {
		return errors.New("expected go")
	}
	return nil
}

// now reads the machine's monotonic clock: the same for all processes.
func now() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}

// cpu is what this process has used of its processors, in nanoseconds.
func cpu() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

func percentile(values []int64, share float64) float64 {
	sort.Slice(values, func(one, other int) bool { return values[one] < values[other] })
	return float64(values[int(float64(len(values)-1)*share+0.5)]) / 1e3
}

// session is a client's lease, kept alive. Each waiter has one of its own: on a shared one the mutex does not exclude.
func session(client *clientv3.Client) (*concurrency.Session, error) {
	return concurrency.NewSession(client, concurrency.WithTTL(ttl))
}

func connect(asked job) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{fmt.Sprintf("127.0.0.1:%d", asked.Ports[0])},
		DialTimeout: 5 * time.Second,
	})
}

// pair is one goroutine that locks and unlocks, again and again.
func pair(asked job) (answer, error) {
	client, err := connect(asked)
	if err != nil {
		return nil, err
	}
	own, err := session(client)
	if err != nil {
		return nil, err
	}
	mutex := concurrency.NewMutex(own, asked.Name+"/0")
	rounds := func(millis int64) (times []int64, err error) {
		until := now() + millis*1e6
		for last := now(); last < until; {
			if err := mutex.Lock(context.Background()); err != nil {
				return nil, err
			}
			if err := mutex.Unlock(context.Background()); err != nil {
				return nil, err
			}
			ended := now()
			times = append(times, ended-last)
			last = ended
		}
		return times, nil
	}
	if _, err := rounds(50); err != nil {
		return nil, err
	}
	if err := gate(); err != nil {
		return nil, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, begun := cpu(), now()
	times, err := rounds(asked.Millis)
	if err != nil {
		return nil, err
	}
	used, wall, count := cpu()-used, now()-begun, float64(len(times))
	runtime.ReadMemStats(&after)
	return answer{
		"n":           count,
		"per_s":       count / (float64(wall) / 1e9),
		"p50_us":      percentile(times, 0.5),
		"p99_us":      percentile(times, 0.99),
		"client_us":   float64(used) / 1e3 / count,
		"allocations": float64(after.Mallocs-before.Mallocs) / count,
		"cpu_s":       float64(used) / 1e9,
		"wall_s":      float64(wall) / 1e9,
	}, nil
}

// event is who, asked, got, gave back, with which fence: the revision at which the lock was got.
type event [5]int64

// contend is a goroutine for each waiter, all on one name.
func contend(asked job) (answer, error) {
	client, err := connect(asked)
	if err != nil {
		return nil, err
	}
	var mutexes []*concurrency.Mutex
	for waiter := 0; waiter < asked.Workers; waiter++ {
		own, err := session(client)
		if err != nil {
			return nil, err
		}
		mutexes = append(mutexes, concurrency.NewMutex(own, asked.Name))
	}
	if err := gate(); err != nil {
		return nil, err
	}
	type log struct {
		events []event
		err    error
	}
	logs := make(chan log)
	used, begun := cpu(), now()
	until := begun + asked.Millis*1e6
	for waiter, mutex := range mutexes {
		go func(waiter int64, mutex *concurrency.Mutex) {
			var mine log
			for asking := now(); asking < until && mine.err == nil; asking = now() {
				if mine.err = mutex.Lock(context.Background()); mine.err != nil {
					break
				}
				got := now()
				fence, gave := mutex.Header().Revision, now()
				mine.err = mutex.Unlock(context.Background())
				mine.events = append(mine.events, event{waiter, asking, got, gave, fence})
			}
			logs <- mine
		}(int64(waiter), mutex)
	}
	events := []event{}
	for range mutexes {
		mine := <-logs
		if mine.err != nil {
			return nil, mine.err
		}
		events = append(events, mine.events...)
	}
	return answer{"events": events, "begun": begun, "until": until, "cpu_s": float64(cpu()-used) / 1e9}, nil
}

func main() {
	lines.Buffer(nil, 1<<20)
	jobs := map[string]func(job) (answer, error){"pair": pair, "contend": contend}
	for lines.Scan() {
		var asked job
		err := json.Unmarshal(lines.Bytes(), &asked)
		done, known := jobs[asked.What]
		if err == nil && !known {
			err = fmt.Errorf("there is no job %q", asked.What)
		}
		var measured answer
		if err == nil {
			measured, err = done(asked)
		}
		if err != nil {
			measured = answer{"error": err.Error()}
		}
		say(measured)
	}
}
