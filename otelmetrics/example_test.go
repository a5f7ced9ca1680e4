package otelmetrics_test

import (
	"context"
	"fmt"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
)

func ExampleRegister() {
	reader := sdk.NewManualReader() // a service has a periodic one, with an exporter
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)})
	if err != nil {
		log.Fatal(err)
	}
	meter := provider.Meter("github.com/ratelimit-go/ratelimit/otelmetrics")
	if _, err := otelmetrics.Register(meter, limiter, otelmetrics.Options{Limiter: "api"}); err != nil {
		log.Fatal(err)
	}

	limiter.Allow("alice", "/")
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &metrics); err != nil {
		log.Fatal(err)
	}
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		if keys, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "rate_limiting.keys" {
			fmt.Println(m.Name, keys.DataPoints[0].Value)
		}
	}
	// Output: rate_limiting.keys 1
}

func ExampleNewSpans() {
	exporter := tracetest.NewInMemoryExporter() // a service has an OTLP exporter
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	spans := otelmetrics.NewSpans(otelmetrics.Options{Limiter: "api"})
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Name: "each client", Rate: ratelimit.PerMinute(1)}, ratelimit.WithObserver(spans))
	if err != nil {
		log.Fatal(err)
	}

	ctx, span := provider.Tracer("shop").Start(context.Background(), "GET /search")
	for range 2 {
		if _, err := limiter.Check(ctx, ratelimit.Request{Client: "alice"}); err != nil {
			log.Fatal(err)
		}
	}
	span.End()
	for _, event := range exporter.GetSpans()[0].Events {
		fmt.Println(event.Name, event.Attributes[1].Value.AsString(), event.Attributes[3].Value.AsString())
	}
	// Output: rate_limiting.denied denied each client
}
