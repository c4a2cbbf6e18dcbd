package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"millrace/internal/ctxio"
)

// patience bounds each wait for an ending. No wait should come near patience.
const patience = time.Minute

// visitor is one client: round connects, sends some frames, waits for their endings, and disconnects.
type visitor struct {
	name    string
	account *account
	round   func(ctx context.Context, v *visitor, rng *rand.Rand) error
	http    string // address
	grpc    string
}

// visit runs rounds until ctx ends. A round once begun is finished, so that each frame has an ending. An error of a
// client with unbroken connections is a failure of the run.
func (v *visitor) visit(ctx context.Context, seed uint64, failed func(error)) {
	for rng := rand.New(rand.NewPCG(seed, 1)); ctx.Err() == nil; {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience+roundTime)
		err := v.round(limited, v, rng)
		cancel()
		if err == nil {
			continue
		}
		if !v.account.cut {
			failed(fmt.Errorf("client %s: %w", v.name, err))
		}
		ctxio.Sleep(ctx, 100*time.Millisecond)
	}
}

// roundTime is about how long a round takes, besides waits for endings.
const roundTime = 10 * time.Second

// frameInterval is the mean time between two frames of a client.
const frameInterval = 40 * time.Millisecond

// pace waits until the next frame is due.
func pace(ctx context.Context, rng *rand.Rand) { ctxio.Sleep(ctx, within(rng, 2*frameInterval)) }

// within draws a time below d.
func within(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}

// frames draws how many frames a round has.
func frames(rng *rand.Rand) int { return 20 + rng.IntN(130) }

// visitors returns all clients. Clients of "cut" accounts get the addresses of the proxies.
func (r *run) visitors() []*visitor {
	direct := func(a *account) *account { r.accounts = append(r.accounts, a); return a }
	oneShot := func(model string) *account { a := newAccount(model); a.oneShot = true; return direct(a) }
	cut := func(a *account) *account { a.cut = true; return a }
	words, sleep, coming, shown := oneShot(wordsModel), oneShot(sleepModel), oneShot(comingModel),
		oneShot(picturesModel)
	coming.unloaded = true
	every, latest, session, graph, calls := direct(newAccount(everyModel)), direct(newAccount(latestModel)),
		direct(newAccount(sessionModel)), direct(newAccount(graphModel)), direct(newAccount(callsModel))
	calls.uncoded = true
	all := []*visitor{
		{name: "REST, Python", account: words, round: restRounds(wordsRequest)},
		{name: "gRPC, Python", account: words, round: callRounds(wordsCall)},
		{name: "REST, delay", account: sleep, round: restRounds(bytesRequest(100))},
		{name: "gRPC, delay", account: sleep, round: callRounds(bytesCall(100))},
		{name: "REST, a model that comes and goes", account: coming, round: restRounds(bytesRequest(1000))},
		{name: "gRPC, a model that comes and goes", account: coming, round: callRounds(bytesCall(1000))},
		{name: "REST, pictures", account: shown, round: restRounds(pictureRequest)},
		{name: "WebSocket, every", account: every, round: plainRound("every", 100)},
		{name: "WebSocket, latest", account: latest, round: plainRound("latest", 100)},
		{name: "millrace.v1", account: session, round: sessionRound(opaqueFrame(500))},
		{name: "millrace.v1, a graph", account: graph, round: sessionRound(tensorFrame("a"))},
		{name: "gRPC, a stream", account: calls, round: streamCallRound},

		{name: "REST, cut", account: cut(oneShot(cutREST)), round: restRounds(bytesRequest(100_000))},
		{name: "gRPC, cut", account: cut(oneShot(cutGRPC)), round: callRounds(bytesCall(100_000))},
		{name: "WebSocket, cut", account: cut(direct(newAccount(cutPlain))), round: plainRound("latest", 50_000)},
		{name: "millrace.v1, cut", account: cut(direct(newAccount(cutSession))),
			round: sessionRound(opaqueFrame(50_000))},
		{name: "WebSocket, slow", account: cut(direct(newAccount(slowModel))), round: plainRound("every", 200_000)},
	}
	if r.site.onnx {
		mlp := oneShot(onnxModel)
		all = append(all, &visitor{name: "REST, ONNX", account: mlp, round: restRounds(mlpRequest)},
			&visitor{name: "gRPC, ONNX", account: mlp, round: callRounds(mlpCall)})
	}
	for _, v := range all {
		v.http, v.grpc = r.server.http, r.server.grpc
		switch {
		case v.account.model == slowModel:
			v.http = r.slow.addr()
		case v.account.cut:
			v.http, v.grpc = r.cutHTTP.addr(), r.cutGRPC.addr()
		}
	}
	return all
}
